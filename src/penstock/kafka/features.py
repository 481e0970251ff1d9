"""UpdateFeatures (57): the levels are those of the program, and change only with it."""

from __future__ import annotations

from typing import Final

from kafka.protocol.admin import UpdateFeaturesResponse

from penstock.kafka.api_versions import finalized_levels
from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.kafka.outcome import DONE, Outcome
from penstock.wire.codec import Message

_RESULTS_UNTIL: Final = 1
"""Up to this version a success has a result for every feature."""


async def update_features(call: Call, request: Message) -> Message:
    """Confirm the levels that are in force, refuse any other; as Kafka, all or none."""
    outcomes = [
        _update(one.feature, one.max_version_level)
        async for one in call.each(request.feature_updates)
    ]
    outcome = next((one for one in outcomes if not one.ok), DONE)
    answer = UpdateFeaturesResponse(error_code=outcome.code, error_message=outcome.message)
    if call.version <= _RESULTS_UNTIL:
        answer.results = [
            UpdateFeaturesResponse.UpdatableFeatureResult(
                feature=one.feature, error_code=Code.NONE, error_message=None
            )
            async for one in call.each(request.feature_updates)
            if outcome.ok
        ]
    return answer


def _update(feature: str, level: int) -> Outcome:
    known = finalized_levels()
    if feature not in known:
        return Outcome(Code.INVALID_UPDATE_VERSION, f"there is no feature {feature[:100]}")
    if level != known[feature]:
        cause = f"{feature} is at {known[feature]}, which changes with the version of the broker"
        return Outcome(Code.INVALID_UPDATE_VERSION, cause)
    return DONE
