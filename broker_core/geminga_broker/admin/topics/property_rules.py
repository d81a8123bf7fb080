"""Which properties a topic may be given (spec OP-03)."""

from __future__ import annotations

from collections.abc import Mapping

from geminga_broker.admin import rest
from geminga_broker.log.catalog import INDEX_PROPERTY
from geminga_broker.topic.fencing import EPOCH_PROPERTY

OWN_PREFIX = "geminga."
"""Properties of a log that are nobody else's: they are not shown, either."""

SHADOW_SOURCE = "PULSAR.SHADOW_SOURCE"
"""Apache's property of a topic that shows another one's messages (PIP-180)."""


def checked(given: dict[str, str] | None) -> dict[str, str]:
    """Properties of a body. Raises RestError 400 for null ones, 412 for too many or the broker's
    own, 501 for those that would make a topic a shadow.
    """
    properties = rest.properties_of(rest.without_nulls(given))
    for name in properties:
        if name.startswith(OWN_PREFIX) or name in (INDEX_PROPERTY, EPOCH_PROPERTY):
            raise rest.RestError(412, f"Property {name[:80]} is the broker's own")
    if SHADOW_SOURCE in properties:
        raise rest.RestError(501, "Shadow topics are not implemented")
    return properties


def within_bounds(properties: Mapping[str, str]) -> dict[str, str]:
    """The same. Raises RestError 412 if those that are there and the new ones are too many."""
    return rest.properties_of(dict(properties))
