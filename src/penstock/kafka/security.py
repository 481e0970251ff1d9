"""Access rules (29-31) and passwords (50, 51): there are none, and that is what is said.

A client that wants to set one is told so, instead of believing that it is protected.
"""

from __future__ import annotations

from typing import Final

from kafka.protocol.admin import (
    AlterUserScramCredentialsResponse,
    CreateAclsResponse,
    DeleteAclsResponse,
    DescribeAclsResponse,
    DescribeUserScramCredentialsResponse,
)

from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.wire.codec import Message

_NO_RULES: Final = "there is no access control: every client may do everything"
_NO_USERS: Final = "there is no access control: clients are not asked for a user or a password"


def describe_acls(call: Call, request: Message) -> Message:
    """Who may do what: there are no rules."""
    return DescribeAclsResponse(
        error_code=Code.SECURITY_DISABLED, error_message=_NO_RULES, resources=[]
    )


async def create_acls(call: Call, request: Message) -> Message:
    """No rule is made, because nothing would follow it."""
    return CreateAclsResponse(
        results=[
            CreateAclsResponse.AclCreationResult(
                error_code=Code.SECURITY_DISABLED, error_message=_NO_RULES
            )
            async for _ in call.each(request.creations)
        ]
    )


async def delete_acls(call: Call, request: Message) -> Message:
    """There is no rule to delete."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsResponse.DeleteAclsFilterResult(
                error_code=Code.SECURITY_DISABLED, error_message=_NO_RULES, matching_acls=[]
            )
            async for _ in call.each(request.filters)
        ]
    )


async def describe_user_scram_credentials(call: Call, request: Message) -> Message:
    """Users with a password: none, whoever is asked for."""
    message = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    return DescribeUserScramCredentialsResponse(
        error_code=Code.NONE,
        error_message="",
        results=[
            message(
                user=name,
                error_code=Code.RESOURCE_NOT_FOUND,
                error_message=_NO_USERS,
                credential_infos=[],
            )
            async for name in call.each(dict.fromkeys(user.name for user in request.users or ()))
        ],
    )


async def alter_user_scram_credentials(call: Call, request: Message) -> Message:
    """No password is kept, because nobody would be asked for it; and there is none to delete."""
    codes = {one.name: Code.RESOURCE_NOT_FOUND for one in request.deletions}
    codes |= {one.name: Code.SECURITY_DISABLED for one in request.upsertions}
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                user=name, error_code=code, error_message=_NO_USERS
            )
            async for name, code in call.each(codes.items())
        ]
    )
