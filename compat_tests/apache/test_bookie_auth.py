"""Authentication between Apache's client and our bookie, and our client and Apache's bookie."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from compat_tests.apache.bookie import ApacheBookie, start_bookie
from compat_tests.apache.jars import run_java
from compat_tests.missing import BOOKIE, skipped_without
from geminga_bookie._tests.support import KEY, Outcomes, packets
from geminga_bookie.errors import BookieUnavailable, BookkeeperError, UnauthorizedAccess
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.wire._tests.auth_plugin import WordAuth, WordClient
from geminga_bookie.wire.auth import ClientAuth
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import open_remote
from geminga_bookie.wire.server import BookieServerOptions, serve_bookie

pytestmark = pytest.mark.java

REFUSED = "-8", "-102"
"""Apache's client sees the closed connection, or EUA."""


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheBookie]:
    settings = {"bookieAuthProviderFactoryClass": "WordAuth$Bookie"}
    with skipped_without(BOOKIE):
        running = start_bookie(tmp_path_factory.mktemp("bookie") / "work", settings)
    yield running
    running.kill()


def called(port: int, version: str, *flags: str) -> list[str]:
    """What Apache's client prints."""
    calls = ["127.0.0.1", str(port), version, "add:7:0", "read:7:0"]
    return [line.split()[1] for line in run_java("BookieCalls", calls, flags=flags).splitlines()]


@pytest.mark.parametrize("version", ["v2", "v3"])
@pytest.mark.parametrize("asks", [True, False])
async def test_apaches_client(version: str, asks: bool, nursery: trio.Nursery) -> None:
    """Its plug-in proves itself to ours; a bookie without authentication lets it in too."""
    options = BookieServerOptions("127.0.0.1", 0, auth=WordAuth() if asks else None)
    bound = await nursery.start(serve_bookie, MemoryBookie(), options)
    flag = "-Dauth=WordAuth$Client"
    found = await trio.to_thread.run_sync(called, bound[0].port, version, flag)
    assert found == ["ok", "ok"]
    if asks:
        flags = flag, "-Dword=other"
        found = await trio.to_thread.run_sync(called, bound[0].port, version, *flags)
        assert set(found) <= {*REFUSED, "failed"}
        found = await trio.to_thread.run_sync(called, bound[0].port, version)
        assert set(found) <= set(REFUSED)
    nursery.cancel_scope.cancel()


async def outcome(port: int, auth: ClientAuth | None) -> BookkeeperError | None:
    """Of an add by our client."""
    options = RemoteOptions(auth=auth, add_timeout_s=30, connect_timeout_s=30)
    async with open_remote("apache:1", "127.0.0.1", port, options) as bookie:
        outcomes = Outcomes()
        bookie.add(7, KEY, 0, packets(7, [0]), outcomes)
        await outcomes.wait_for(1)
        return outcomes.errors[0] if outcomes.errors else None


async def test_our_client(apache: ApacheBookie) -> None:
    assert await outcome(apache.port, WordClient()) is None
    assert isinstance(await outcome(apache.port, WordClient(b"other")), BookieUnavailable)
    assert isinstance(await outcome(apache.port, None), UnauthorizedAccess)
