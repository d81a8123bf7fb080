"""The session of a metadata store as state (spec CL-01): epoch, phase, and when it is lost."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from geminga_runtime.metadata.api import Session, SessionExpired, SessionPhase


class SessionTracker:
    """Epoch and phase of one store's session. Call all methods in the loop's thread.

    `deadline` is the time of `trio.current_time` at which the session is lost unless the store is
    heard of before. Every look at the session compares it with the clock: no task is needed, and
    a process that was paused finds the loss before it does anything else.
    """

    def __init__(
        self,
        phase: SessionPhase = SessionPhase.CONNECTED,
        *,
        deadline: Callable[[], float] = lambda: math.inf,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        self._epoch = 1
        self._phase = phase
        self._deadline = deadline
        self._on_loss = on_loss
        self._lost_at = math.inf
        self._changed = trio.Event()
        self._seen = Session(self._epoch, phase, math.inf)
        """The last answer: most are the same."""

    @property
    def session(self) -> Session:
        """MetadataStore.session."""
        if self._phase in (SessionPhase.CONNECTED, SessionPhase.SUSPENDED):
            lost_at = self._deadline()
            if lost_at == math.inf or trio.current_time() < lost_at:
                return self._session(lost_at)
            self.lose()
        return self._session(self._lost_at)

    def _session(self, lost_at: float) -> Session:
        seen = self._seen
        if seen.lost_at != lost_at or seen.epoch != self._epoch or seen.phase is not self._phase:
            seen = self._seen = Session(self._epoch, self._phase, lost_at)
        return seen

    def connect(self) -> None:
        """There is a connection, of the same session or, after a loss, of a new one."""
        self._enter(SessionPhase.CONNECTED)

    def suspend(self) -> None:
        """The connection is lost."""
        if self.session.phase is SessionPhase.CONNECTED:
            self._enter(SessionPhase.SUSPENDED)

    def lose(self) -> None:
        """The session has ended: a new epoch begins. Ignored while there is none."""
        if self._phase in (SessionPhase.CONNECTED, SessionPhase.SUSPENDED):
            self._lost_at = min(self._deadline(), trio.current_time())
            self._epoch += 1
            self._enter(SessionPhase.LOST)
            self._on_loss()

    def close(self) -> None:
        """The store is closed: the session ends, and none follows."""
        if self._phase is not SessionPhase.CLOSED:
            self._lost_at = min(self._deadline(), trio.current_time())
            self._epoch += 1
            self._enter(SessionPhase.CLOSED)

    def _enter(self, phase: SessionPhase) -> None:
        if self._phase is not SessionPhase.CLOSED:
            self._phase = phase
            changed, self._changed = self._changed, trio.Event()
            changed.set()

    def check_epoch(self, epoch: int | None) -> None:
        """Raises SessionExpired if an ephemeral put's epoch is not the session's."""
        if epoch is not None and epoch != (now := self.session.epoch):
            raise SessionExpired(f"the session of epoch {epoch} has ended, now it is {now}")

    async def wait_change(self, epoch: int) -> Session:
        """MetadataStore.wait_change."""
        await trio.lowlevel.checkpoint()
        while (session := self.session).epoch == epoch:
            if session.phase is SessionPhase.CLOSED:
                raise SessionExpired("the store is closed")
            is_lost = session.phase is SessionPhase.LOST
            await self._wait(math.inf if is_lost else session.lost_at)
        return session

    async def wait_connected(self) -> Session:
        """The session, once there is a connection, or when waiting is vain: LOST or CLOSED."""
        await trio.lowlevel.checkpoint()
        while (session := self.session).phase is SessionPhase.SUSPENDED:
            await self._wait(session.lost_at)
        return session

    async def wait_session(self) -> Session:
        """The session, once there is one with a connection, or the store is closed."""
        await trio.lowlevel.checkpoint()
        while (session := self.session).phase in (SessionPhase.SUSPENDED, SessionPhase.LOST):
            await self._changed.wait()
        return session

    async def _wait(self, lost_at: float) -> None:
        with trio.move_on_at(lost_at):
            await self._changed.wait()
