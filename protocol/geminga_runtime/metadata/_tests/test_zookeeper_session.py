"""In which session a change is sent, without a server."""

# kazoo is of an extra.
# pyright: reportMissingImports=false

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from geminga_runtime.metadata.api import StoreUnavailable
from geminga_runtime.metadata.zookeeper_session import ZooKeeperSession
from geminga_runtime.metadata.zookeeper_wire import Request


class _Link:
    """What the session asks of its link."""

    timeout_s = 1e9
    contact_at = 0.0
    session_id: int | None = None
    ended: int | None = None

    def __init__(self) -> None:
        self.sent: list[object] = []
        self.requests: list[Request] = []

    def submit(self, content: object, request: Request) -> None:
        self.sent.append(content)
        self.requests.append(request)


def _session(monkeypatch: pytest.MonkeyPatch) -> tuple[ZooKeeperSession, _Link]:
    link = _Link()
    monkeypatch.setattr("geminga_runtime.metadata.zookeeper_session.Link", lambda *_arguments: link)
    session = ZooKeeperSession(
        "nowhere",
        10.0,
        connected=lambda: None,
        changed=lambda _kind, _path: None,
        overflowed=lambda: None,
    )
    return session, link


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_change_is_not_sent_in_a_later_session(
    monkeypatch: pytest.MonkeyPatch, *, is_new: bool
) -> None:
    """What was decided in the earlier one may be another broker's by now."""
    session, link = _session(monkeypatch)
    link.session_id = 5
    session.on_up(1, 5)
    session.on_down(1)
    refused = False

    async def change() -> None:
        nonlocal refused
        try:
            await session.change(b"x", 1)
        except StoreUnavailable:
            refused = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        await wait_all_tasks_blocked()
        assert link.sent == []
        # Both in one turn of the loop, as after a pause of the process.
        if is_new:
            session.on_gone(1, 5)
            link.session_id = 6
        session.on_up(2, link.session_id)
        await wait_all_tasks_blocked()
        assert (refused, link.sent) == ((True, []) if is_new else (False, [b"x"]))
        nursery.cancel_scope.cancel()


async def test_a_slow_answer_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("geminga_runtime.observing.slow.SLOW_S", -1.0)
    session, link = _session(monkeypatch)
    link.session_id = 5
    session.on_up(1, 5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(session.read, "x", 1)
        await wait_all_tasks_blocked()
        (request,) = link.requests
        assert caplog.messages == []
        request.finish("found", None)
    (line,) = caplog.messages
    assert line.startswith("slow: ZooKeeper's str: ")
