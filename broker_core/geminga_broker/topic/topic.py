"""A loaded topic, of either kind (spec BR-08).

Synchronous calls take effect before they return; calls that need storage are async. Refusals are
BrokerErrors with the code for the client.
"""

from __future__ import annotations

from typing import TypeAlias

from geminga_broker.topic.nonpersistent import NonPersistentTopic
from geminga_broker.topic.persistent import PersistentTopic

Topic: TypeAlias = PersistentTopic | NonPersistentTopic
"""Both have the same interface."""
