"""DescribeClientQuotas (48), AlterClientQuotas (49): for client ids; users and addresses have none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from kafka.protocol.admin import AlterClientQuotasResponse, DescribeClientQuotasResponse

from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.kafka.outcome import DONE, Outcome, RefusedError, attempt, reply_when_durable
from penstock.wire.codec import Message

_CLIENT_ID: Final = "client-id"
_KNOWN: Final = ("user", _CLIENT_ID, "ip")
_EXACT, _DEFAULT, _ANY = 0, 1, 2


# -- DescribeClientQuotas


async def describe_client_quotas(call: Call, request: Message) -> Message:
    """The quotas that a filter lets through."""
    async for component in call.each(request.components):
        named = component.match_type == _EXACT
        if (
            component.entity_type not in _KNOWN
            or component.match_type not in (_EXACT, _DEFAULT, _ANY)
            or named != (component.match is not None)
        ):
            return DescribeClientQuotasResponse(
                error_code=Code.INVALID_REQUEST,
                error_message="the filter names a kind of client, or of match, that does not exist",
                entries=None,
            )
    return DescribeClientQuotasResponse(
        error_code=Code.NONE,
        error_message="",
        entries=[
            _entry(client_id, rates)
            async for client_id, rates in call.each(list(call.context.broker.quotas.all()))
            if _matches(client_id, request)
        ],
    )


def _matches(client_id: str | None, request: Message) -> bool:
    """Every component must match; if it is strict, there must be one for the client id."""
    for component in request.components:
        if component.entity_type != _CLIENT_ID:
            return False
        wanted = component.match if component.match_type == _EXACT else None
        if component.match_type != _ANY and client_id != wanted:
            return False
    return bool(request.components) or not request.strict


def _entry(client_id: str | None, rates: Mapping[str, float]) -> Message:
    message = DescribeClientQuotasResponse.EntryData
    return message(
        entity=[message.EntityData(entity_type=_CLIENT_ID, entity_name=client_id)],
        values=[message.ValueData(key=kind, value=rate) for kind, rate in rates.items()],
    )


# -- AlterClientQuotas


async def alter_client_quotas(call: Call, request: Message) -> Message | None:
    """Change quotas, each entry by itself; answered when they are durable."""
    outcomes = [
        (entry, attempt(partial(_alter, call, entry, request.validate_only)))
        async for entry in call.each(request.entries)
    ]
    if request.validate_only or not any(outcome.ok for _, outcome in outcomes):
        return await _altered(call, outcomes, DONE)
    reply_when_durable(call, partial(_altered, call, outcomes))
    return None


def _alter(call: Call, entry: Message, validate_only: bool) -> None:
    operation = "change a quota"
    if [part.entity_type for part in entry.entity] != [_CLIENT_ID]:
        cause = "there is no access control, so that only a client-id can have one"
        raise RefusedError(Code.INVALID_REQUEST, operation, cause)
    keys = [change.key for change in entry.ops]
    if len(set(keys)) < len(keys):
        raise RefusedError(Code.INVALID_REQUEST, operation, "a rate is named more than once")
    client_id = entry.entity[0].entity_name
    changes = {change.key: None if change.remove else change.value for change in entry.ops}
    quotas = call.context.broker.quotas
    if validate_only:
        quotas.check(client_id, changes)
    else:
        quotas.change(client_id, changes)


async def _altered(
    call: Call, outcomes: list[tuple[Message, Outcome]], durable: Outcome
) -> Message:
    return AlterClientQuotasResponse(
        entries=[
            await _answered(call, entry, durable if outcome.ok else outcome)
            async for entry, outcome in call.each(outcomes)
        ]
    )


async def _answered(call: Call, entry: Message, outcome: Outcome) -> Message:
    message = AlterClientQuotasResponse.EntryData
    return message(
        error_code=outcome.code,
        error_message=outcome.message,
        entity=[
            message.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            async for part in call.each(entry.entity)
        ],
    )
