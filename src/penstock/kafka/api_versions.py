"""ApiVersions (key 18): what this broker can do. The first thing every client asks."""

from __future__ import annotations

import re
from typing import Final

from kafka.protocol.metadata import ApiVersionsResponse

from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.wire import codec
from penstock.wire.codec import Message

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
# The lowest and the highest level of each feature; all are at their highest. Kafka 4.3's metadata
# level, by which consoles tell a cluster's version, and features that switch clients to a protocol.
_FEATURES: Final = {
    "metadata.version": (7, 30),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "share.version": (0, 1),
}
# Some Java clients, 3.4 and 3.6 among them, know no level below 1 and can use no broker that has one.
_LOWEST_MAY_BE_0_FROM: Final = 4


def api_versions(call: Call, request: Message) -> None:
    """Every request of the table, with its versions."""
    response = ApiVersionsResponse(error_code=Code.INVALID_REQUEST)
    if call.version < 3 or _is_well_named(request):
        response = ApiVersionsResponse(
            api_keys=_api_keys(),
            supported_features=[
                ApiVersionsResponse.SupportedFeatureKey(
                    name=name, min_version=lowest, max_version=highest
                )
                for name, (lowest, highest) in _FEATURES.items()
                if lowest > 0 or call.version >= _LOWEST_MAY_BE_0_FROM
            ],
            finalized_features_epoch=0,
            finalized_features=[
                ApiVersionsResponse.FinalizedFeatureKey(
                    name=name, min_version_level=level, max_version_level=level
                )
                for name, level in finalized_levels().items()
            ],
        )
    _reply(call, response, call.version)


def finalized_levels() -> dict[str, int]:
    """The features in force, and their levels."""
    return {name: level for name, (_, level) in _FEATURES.items()}


def unsupported_version(call: Call) -> None:
    """Answer a version that is too high: in version 0, which every client reads (KIP-511).

    With nothing but the versions of this request: some clients would take more for the whole answer,
    and so miss the features, which version 0 has not.
    """
    own = [api for api in _api_keys() if api.api_key == ApiVersionsResponse.API_KEY]
    response = ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=own)
    _reply(call, response, 0)


def _reply(call: Call, response: Message, version: int) -> None:
    # A client that does not know yet what we speak must be able to read the header: it has no tagged
    # fields in any version.
    call.reply_parts([codec.encode(response, version)], flexible=False)


def _is_well_named(request: Message) -> bool:
    return bool(
        _SOFTWARE.fullmatch(request.client_software_name or "")
        and _SOFTWARE.fullmatch(request.client_software_version or "")
    )


def _api_keys() -> list[Message]:
    # The table names this module's handler, so it can be had only after it was made.
    from penstock.kafka.apis import APIS  # noqa: PLC0415

    return [
        ApiVersionsResponse.ApiVersion(
            api_key=key, min_version=api.advertised_lowest, max_version=api.highest
        )
        for key, api in APIS.items()
    ]
