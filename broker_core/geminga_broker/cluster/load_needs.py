"""What the load of a topic needs of other rooms (spec BR-01, CL-04)."""

# A protocol's methods have docstrings for bodies.
# pyright: reportReturnType=false

from __future__ import annotations

from typing import Protocol

from geminga_broker.log.api import ManagedLedger
from geminga_broker.log.options import Persistence
from geminga_broker.ownership.bundle import BundleId
from geminga_protocol.topic_name import TopicName

LOADS_A_TURN = 8
"""Loads of topics that begin in a turn of the loop, and those that go on once the log is open: a
few ms. How many wait for the storage at the same time is not bounded by this.
"""


class Logs(Protocol):
    """Opens managed ledgers; `log.factory.ManagedLedgerFactory`."""

    async def open(
        self,
        name: str,
        *,
        create: bool = True,
        persistence: Persistence | None = None,
        here: bool = False,
    ) -> ManagedLedger:
        """The log with that name (`tenant/ns/persistent/topic`); `here` if it is likely new, for
        a caller that isn't cancelled with others.
        """


class Gate(Protocol):
    """Says which topics may be here: those of bundles that this broker owns."""

    async def admit(self, topic: TopicName) -> BundleId:
        """The topic's bundle, which this broker owns. Raises BrokerError ServiceNotReady, and
        MetadataError while it is being unloaded; MetadataError of the store.
        """

    def tenure(self, bundle: BundleId) -> int | None:
        """Under which number the bundle is owned now: another one after it was lost and taken
        again. None if it isn't.
        """
