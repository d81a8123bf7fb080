"""Failover to another cluster when one is unreachable (spec SDK-44; PIP-121, AutoClusterFailover of
the Java client).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import trio

from geminga._connection.service_url import parse
from geminga._connection.tls_options import TlsOptions
from geminga._options.checks import not_negative, positive
from geminga.auth import Authentication, check_authentication
from geminga.errors import InvalidArgumentError

logger = logging.getLogger("geminga")


@dataclass(frozen=True)
class FailoverCluster(TlsOptions):
    """A cluster to fail over to, with its own authentication and TLS options: the client's don't
    apply to it. Raises InvalidServiceUrlError and InvalidArgumentError.
    """

    service_url: str
    authentication: Authentication | None = None

    def __post_init__(self) -> None:
        parse(self.service_url)
        check_authentication(self.authentication)
        self.check_tls()


@dataclass(frozen=True)
class AutoClusterFailover:
    """Service URLs to switch to, in this order, when the primary (the client's own) has been
    unreachable for `failover_delay_s`. Once the primary has been reachable for
    `switch_back_delay_s`, the client switches back. It checks every `check_interval_s`.

    For a URL the client's own authentication and TLS options are used; a FailoverCluster has its
    own. Producers and consumers reconnect there, and pending messages are sent there. The clusters
    must replicate each other. Raises InvalidServiceUrlError and InvalidArgumentError.
    """

    secondary: Sequence[str | FailoverCluster]
    failover_delay_s: float = 30.0
    switch_back_delay_s: float = 60.0
    check_interval_s: float = 30.0

    def __post_init__(self) -> None:
        if isinstance(self.secondary, str) or not self.secondary:
            raise InvalidArgumentError("secondary must be a list with at least one service URL")
        for each in self.secondary:
            if not isinstance(each, FailoverCluster):
                parse(each)
        not_negative(self, "failover_delay_s", "switch_back_delay_s")
        positive(self, "check_interval_s")


class FailoverState:
    """The cluster in use; 0 is the primary. Pure; `probe(n)` returns whether one is reachable."""

    def __init__(self, policy: AutoClusterFailover) -> None:
        self._policy = policy
        self._count = 1 + len(policy.secondary)
        self._down_since_s: float | None = None
        self._primary_up_since_s: float | None = None
        self.current = 0

    async def check(self, now_s: float, probe: Callable[[int], Awaitable[bool]]) -> bool:
        """Check once; returns whether `current` has changed."""
        if await probe(self.current):
            self._down_since_s = None
            return await self._check_back(now_s, probe)
        self._primary_up_since_s = None
        if self._down_since_s is None:
            self._down_since_s = now_s
        if now_s - self._down_since_s < self._policy.failover_delay_s:
            return False
        for other in range(self._count):
            if other != self.current and await probe(other):
                self._go(other)
                return True
        return False

    async def _check_back(self, now_s: float, probe: Callable[[int], Awaitable[bool]]) -> bool:
        if self.current == 0:
            return False
        if not await probe(0):
            self._primary_up_since_s = None
            return False
        if self._primary_up_since_s is None:
            self._primary_up_since_s = now_s
        if now_s - self._primary_up_since_s < self._policy.switch_back_delay_s:
            return False
        self._go(0)
        return True

    def _go(self, to: int) -> None:
        self.current = to
        self._down_since_s = self._primary_up_since_s = None


async def watch(
    policy: AutoClusterFailover,
    probe: Callable[[int], Awaitable[bool]],
    switch: Callable[[int], None],
) -> None:
    """Check repeatedly, until cancelled; `switch(n)` is called with the cluster to use."""
    state = FailoverState(policy)
    while True:
        await trio.sleep(policy.check_interval_s)
        if await state.check(trio.current_time(), probe):
            logger.warning("switching to cluster %d of the service URLs", state.current)
            switch(state.current)
