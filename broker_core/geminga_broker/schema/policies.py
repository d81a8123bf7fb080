"""Schema policies of broker, namespace and topic (spec BR-51, BR-60)."""

from __future__ import annotations

from typing import NamedTuple

from geminga_broker.cluster.records import JsonObject
from geminga_broker.config import SchemaConfig
from geminga_broker.schema.model import Strategy

AUTO_UPDATE_STRATEGIES = {
    "AutoUpdateDisabled": Strategy.ALWAYS_INCOMPATIBLE,
    "Backward": Strategy.BACKWARD,
    "Forward": Strategy.FORWARD,
    "Full": Strategy.FULL,
    "AlwaysCompatible": Strategy.ALWAYS_COMPATIBLE,
    "BackwardTransitive": Strategy.BACKWARD_TRANSITIVE,
    "ForwardTransitive": Strategy.FORWARD_TRANSITIVE,
    "FullTransitive": Strategy.FULL_TRANSITIVE,
}
"""Apache's older names (`SchemaAutoUpdateCompatibilityStrategy`)."""


class SchemaPolicies(NamedTuple):
    """The policies of one topic."""

    strategy: Strategy
    auto_update: bool
    """Whether producers and consumers may register new schemas."""
    enforced: bool
    """Whether producers without a schema are refused if the topic has one."""


def schema_policies(
    topic: JsonObject, namespace: JsonObject | None, config: SchemaConfig
) -> SchemaPolicies:
    """The nearest level with a value counts, first the topic's."""
    space = namespace or {}
    strategy = (
        _strategy(topic.get("schemaCompatibilityStrategy"))
        or _strategy(space.get("schema_compatibility_strategy"))
        or AUTO_UPDATE_STRATEGIES.get(str(space.get("schema_auto_update_compatibility_strategy")))
        or _strategy(config.compatibility_strategy)
        or Strategy.FULL
    )
    auto_update = _flag(space.get("is_allow_auto_update_schema"), config.allow_auto_update)
    # Other levels can't turn off the broker's enforcement.
    enforced = config.validation_enforced or _flag(
        topic.get("schemaValidationEnforced"),
        _flag(space.get("schema_validation_enforced"), False),
    )
    return SchemaPolicies(strategy, auto_update, enforced)


def _strategy(name: object) -> Strategy | None:
    found = Strategy.__members__.get(str(name))
    return None if found is Strategy.UNDEFINED else found


def _flag(value: object, default: bool) -> bool:
    return value if isinstance(value, bool) else default
