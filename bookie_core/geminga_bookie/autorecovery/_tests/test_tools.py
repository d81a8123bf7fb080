"""The shell's commands on a cluster."""

from __future__ import annotations

import pytest
import trio
from click.testing import CliRunner
from trio.testing import wait_all_tasks_blocked

from geminga_bookie.autorecovery import tools
from geminga_bookie.autorecovery._tests.world import World
from geminga_bookie.autorecovery.config import load_config
from geminga_bookie.autorecovery.daemon import run
from geminga_bookie.autorecovery.options import AutoRecoveryOptions
from geminga_bookie.autorecovery.tools import Cluster, Recovery, Shown, ToolFailed
from geminga_bookie.cli import bookieshell
from geminga_bookie.client.api import LedgerOptions, LedgerState
from geminga_bookie.client.append import append_durably
from geminga_protocol.bookkeeper import paths
from geminga_protocol.bookkeeper import underreplication as tree
from geminga_runtime.metadata.api import StoreUnavailable
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore
from geminga_runtime.settings import ConfigError


class Terminal:
    """A cluster, and what was printed."""

    def __init__(self, world: World) -> None:
        self.lines: list[str] = []
        self.at = Cluster(
            world.store, world.directory, world.tasks, world.options, self.lines.append
        )

    def printed(self) -> list[str]:
        lines, self.lines[:] = self.lines[:], []
        return lines


async def test_bookies_are_listed() -> None:
    world = World(3)
    await world.register(*world.peers[:2])
    await world.register(world.peers[2], readonly=True)
    terminal = Terminal(world)
    assert await tools.list_bookies(terminal.at, writable=True, readonly=True) == 0
    assert terminal.printed() == [
        "ReadWrite Bookies :",
        "BookieID:b0:3181",
        "BookieID:b1:3181",
        "Readonly Bookies :",
        "BookieID:b2:3181",
    ]


async def test_marked_ledgers_are_listed() -> None:
    world = World(0)
    world.tasks._now_ms = lambda: 77
    await world.tasks.publish(5, ["a:1", "b:1"])
    await world.tasks.publish(1 << 33, ["b:1"])
    await world.tasks.acquire(5, world.store.session.epoch)
    terminal = Terminal(world)
    await tools.list_underreplicated(
        terminal.at, Shown(missing="a:1", with_replicas=True, with_worker=True)
    )
    assert terminal.printed() == [
        "5",
        "\tCtime : 77",
        "\tMissingReplica : a:1",
        "\tMissingReplica : b:1",
        "\tReplicationWorkerId : test",
        "Under replicated ledger count: 1",
    ]
    await tools.list_underreplicated(terminal.at, Shown(excluded="a:1"))
    assert terminal.printed()[0] == f"{1 << 33}"
    await tools.list_underreplicated(terminal.at, Shown(only_count=True))
    assert terminal.printed() == ["Under replicated ledger count: 2"]


async def test_switch_and_delay() -> None:
    terminal = Terminal(World(0))
    assert await tools.who_is_auditor(terminal.at) == 1
    with pytest.raises(ToolFailed, match="not set"):
        await tools.delay(terminal.at, None)
    await tools.delay(terminal.at, 30)
    await tools.delay(terminal.at, None)
    for wanted in (False, False, None, True, None):
        await tools.toggle(terminal.at, wanted)
    assert terminal.printed() == [
        "No auditor elected",
        "Successfully set LostBookieRecoveryDelay value in ZK: 30",
        "LostBookieRecoveryDelay value in ZK: 30",
        "Disabled autorecovery",
        "Autorecovery already disabled. Doing nothing",
        "Autorecovery is disabled.",
        "Enabled autorecovery",
        "Autorecovery is enabled.",
    ]


async def test_a_stopped_bookie_is_decommissioned(autojump_clock: object) -> None:
    """A long delay is not waited for; a running bookie is refused."""
    world = World(5, AutoRecoveryOptions(lost_bookie_delay_s=86_400))
    await world.register()
    ledger = await world.ledger((3, 3, 2), 10)
    stopped = ledger.ensembles[0][1]
    terminal = Terminal(world)
    with pytest.raises(ToolFailed, match="is running"):
        await tools.decommission(terminal.at, stopped)
    async with trio.open_nursery() as nursery:
        store = world.store.another_session()

        async def daemon() -> None:
            await run(store, world.directory, world.options, owner="daemon:3181")

        nursery.start_soon(daemon)
        await wait_all_tasks_blocked()
        await world.kill(world.peer(stopped))
        await world.store.put(f"{tools.COOKIES}/{stopped}", b"4\n")
        with trio.fail_after(600):
            assert await tools.decommission(terminal.at, stopped) == 0
        nursery.cancel_scope.cancel()
    await world.check_whole(ledger.ledger_id)
    assert terminal.printed()[-1].startswith("Cookie of the decommissioned bookie")
    assert await world.store.children(tools.COOKIES) == []


async def test_a_bookie_that_starts_meanwhile_keeps_its_cookie(autojump_clock: object) -> None:
    """Without it, it could never start again, with the new ledgers that it got."""
    world = World(4)
    await world.register()
    ledger = await world.ledger((3, 3, 2), 10)
    stopped = world.peer(ledger.ensembles[0][1])
    await world.tasks.prepare()
    await world.store.put(tree.VOTE, tree.encode_vote("auditor"), -1, sequential=True)
    await world.remove(stopped)
    cookie = f"{tools.COOKIES}/{stopped.bookie_id}"
    await world.store.put(cookie, b"4\n")

    async def start_again() -> None:
        await trio.sleep(tools.POLL_S / 2)
        await world.register(stopped)
        await world.client.delete(ledger.ledger_id)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start_again)
        with pytest.raises(ToolFailed, match="is running"):
            await tools.decommission(Terminal(world).at, stopped.bookie_id)
    assert await world.store.exists(cookie)


async def test_without_an_auditor_nothing_is_waited_for() -> None:
    world = World(1)
    await world.tasks.prepare()
    with pytest.raises(ToolFailed, match="no auditor"):
        await tools.decommission(Terminal(world).at, "b9:3181")
    await world.tasks.disable()
    with pytest.raises(ToolFailed, match="disabled"):
        await tools.trigger_audit(Terminal(world).at)


async def test_a_bookie_is_recovered_by_hand() -> None:
    """Also a running one, and the open ledgers it has; nothing stays marked."""
    world = World(6)
    await world.register()
    closed = await world.ledger((3, 3, 2), 10)
    writer = await world.client.create(LedgerOptions(3, 3, 2))
    await append_durably(writer, [(b"%d" % n,) for n in range(10)])
    opened = await world.client.metadata(writer.ledger_id)
    common = sorted({*closed.ensembles[0]} & {*opened.ensembles[0]})[0]
    terminal = Terminal(world)
    await tools.recover(terminal.at, Recovery(common, is_query=True))
    assert len(terminal.printed()) == 2
    assert await world.marked() == []
    await tools.recover(terminal.at, Recovery(common, skip_open=True))
    assert terminal.printed() == [
        f"ledger {closed.ledger_id}: whole",
        f"ledger {opened.ledger_id}: left open",
    ]
    assert await tools.recover(terminal.at, Recovery(common, opened.ledger_id)) == 0
    for ledger_id in (closed.ledger_id, opened.ledger_id):
        metadata = await world.check_whole(ledger_id)
        assert metadata.state is LedgerState.CLOSED
        assert common not in metadata.ensembles[0]
    assert await world.marked() == []
    assert await world.tasks.locked() == set()


async def test_a_recovered_bookies_cookie_is_deleted(autojump_clock: object) -> None:
    """Only once nothing needs it, and not while it runs."""
    world = World(5)
    await world.register()
    ledger = await world.ledger((3, 3, 2), 10)
    bookie_id = ledger.ensembles[0][0]
    await world.store.put(f"{tools.COOKIES}/{bookie_id}", b"4\n")
    terminal, wanted = Terminal(world), Recovery(bookie_id, deletes_cookie=True)
    with pytest.raises(ToolFailed, match="is running"):
        await tools.recover(terminal.at, wanted)
    await world.kill(world.peer(bookie_id))
    assert await tools.recover(terminal.at, wanted) == 0
    assert terminal.printed() == [
        f"ledger {ledger.ledger_id}: whole",
        f"bookie {bookie_id}: cookie deleted",
    ]
    assert await world.store.get(f"{tools.COOKIES}/{bookie_id}") is None
    assert await tools.recover(terminal.at, wanted) == 0
    assert await tools.recover(terminal.at, Recovery(bookie_id, 77)) == 0
    assert terminal.printed() == [
        f"no ledger on bookie {bookie_id}",
        f"bookie {bookie_id}: it had no cookie",
        f"ledger 77: not on bookie {bookie_id}",
    ]


async def test_metadata_that_are_not_valid_are_told(autojump_clock: object) -> None:
    """The other ledgers are recovered; but the bookie can't be told to be needed no more."""
    world = World(5)
    await world.register()
    ledger = await world.ledger((3, 3, 2), 10)
    bookie_id = ledger.ensembles[0][0]
    await world.store.put(paths.ledger(ledger.ledger_id + 1), b"?")
    terminal = Terminal(world)
    assert await tools.recover(terminal.at, Recovery(bookie_id)) == 1
    said = f"ledger {ledger.ledger_id + 1} has no valid metadata"
    assert [line.partition(":")[0] for line in terminal.printed()] == [
        f"ledger {ledger.ledger_id}",
        said,
    ]
    await world.check_whole(ledger.ledger_id)
    await world.kill(world.peer(bookie_id))
    await world.tasks.prepare()
    await world.store.put(tree.VOTE, tree.encode_vote("auditor"), -1, sequential=True)
    with pytest.raises(ToolFailed, match="can't be told"):
        await tools.decommission(terminal.at, bookie_id)


async def test_a_plan_changes_nothing() -> None:
    world = World(5)
    await world.register()
    ledger = await world.ledger((3, 3, 2), 10)
    writer = await world.client.create(LedgerOptions(3, 3, 2))
    lost = ledger.ensembles[0][1]
    terminal = Terminal(world)
    steps = world.steps.count
    wanted = Recovery(lost, ledger.ledger_id, deletes_cookie=True, is_dry=True)
    assert await tools.recover(terminal.at, wanted) == 0
    (line,) = terminal.printed()
    head, _, target = line.rpartition(" ")
    assert head == f"ledger {ledger.ledger_id}: entries 0 to 9 of {lost} would be copied to"
    assert target in {each.bookie_id for each in world.peers} - {*ledger.ensembles[0]}
    first = (await world.client.metadata(writer.ledger_id)).ensembles[0][0]
    assert await tools.recover(terminal.at, Recovery(first, writer.ledger_id, is_dry=True)) == 0
    assert terminal.printed() == [f"ledger {writer.ledger_id}: would be closed first"]
    assert (await world.client.metadata(ledger.ledger_id)) == ledger
    assert world.steps.count == steps
    assert await world.marked() == []


async def test_several_bookies_are_recovered_at_once(autojump_clock: object) -> None:
    world = World(6)
    await world.register()
    ledger = await world.ledger((3, 3, 2), 10)
    lost = ledger.ensembles[0][:2]
    for bookie_id in lost:
        await world.store.put(f"{tools.COOKIES}/{bookie_id}", b"4\n")
        await world.kill(world.peer(bookie_id))
    terminal = Terminal(world)
    wanted = Recovery(", ".join(lost), deletes_cookie=True, bytes_per_s=1 << 30)
    assert await tools.recover(terminal.at, wanted) == 0
    assert terminal.printed()[1:] == [f"bookie {each}: cookie deleted" for each in sorted(lost)]
    metadata = await world.check_whole(ledger.ledger_id)
    assert not {*lost} & {*metadata.ensembles[0]}
    with pytest.raises(ToolFailed, match="no bookie"):
        await tools.recover(terminal.at, Recovery(" ,"))


async def test_ledgers_that_cannot_be_recovered_are_skipped(autojump_clock: object) -> None:
    """They are no failure then, but the bookie's cookie is kept for them."""
    world = World(3)
    await world.register()
    ledger = await world.ledger((3, 3, 2), 10)
    await world.kill(world.peer("b1:3181"))
    cookie = f"{tools.COOKIES}/b1:3181"
    await world.store.put(cookie, b"4\n")
    terminal = Terminal(world)
    wanted = Recovery("b1:3181", deletes_cookie=True, skips_failed=True)
    assert await tools.recover(terminal.at, wanted) == 0
    assert terminal.printed() == [
        f"ledger {ledger.ledger_id}: lacking",
        "bookie b1:3181: cookie kept, 1 ledgers need it",
    ]
    assert await world.store.exists(cookie)
    assert await world.marked() == [ledger.ledger_id]


async def test_what_cannot_be_recovered_stays_marked() -> None:
    world = World(3)
    await world.register()
    ledger = await world.ledger((3, 3, 2), 10)
    terminal = Terminal(world)
    assert await tools.recover(terminal.at, Recovery("b1:3181")) == 1
    assert terminal.printed() == [f"ledger {ledger.ledger_id}: lacking"]
    assert await world.marked() == [ledger.ledger_id]
    assert await world.tasks.locked() == set()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["listbookies"], "metadataServiceUri: must be set"),
        (["whoisauditor", "--metadata-store", "etcd://x/ledgers"], "is neither"),
        (["autorecovery", "-e", "-d"], "only one of"),
        (["lostbookierecoverydelay"], "one of -g and -s"),
        (["decommissionbookie"], "-bookieid"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(bookieshell, arguments)
    assert done.exit_code == 2
    assert said in done.output


async def test_what_a_command_refuses_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a group of them, which nobody would print as one sentence."""

    async def opened(*_: object, **__: object) -> MemoryMetadataStore:
        store = MemoryMetadataStore()
        await store.put(paths.INSTANCE_ID, instance)
        return store

    instance = b""
    monkeypatch.setattr(ZooKeeperMetadataStore, "open", opened)
    config = load_config(None, {}, {"zkServers": "nowhere:1"})
    with pytest.raises(ConfigError, match="has no /ledgers/INSTANCEID"):
        await tools.on_cluster(config, tools.who_is_auditor)
    instance = b"i"
    with pytest.raises(ToolFailed, match="not set"):
        await tools.on_cluster(config, lambda at: tools.delay(at, None))
    with pytest.raises(StoreUnavailable, match="away"):
        await tools.on_cluster(config, _fail)
    assert await tools.on_cluster(config, tools.who_is_auditor) == 1


async def _fail(_: Cluster) -> int:
    raise StoreUnavailable("away")


def test_the_store_of_apaches_keys() -> None:
    def url(**given: str) -> str:
        return load_config(None, {}, given).metadata.store_url()

    assert url(metadataServiceUri="zk+hierarchical://a:1;b/x/ledgers") == "zk:a:1,b/x"
    assert url(zkServers="a:1,b:2") == "zk:a:1,b:2"
    assert url(zkServers="a:1,b:2/x", zkLedgersRootPath="/ledgers") == "zk:a:1,b:2/x"
    with pytest.raises(ConfigError, match="zkServers"):
        url(zkServers="a:1", zkLedgersRootPath="/other")
    config = load_config(None, {}, {"bookieId": "mine", "lostBookieRecoveryDelay": "5"})
    assert config.daemon.owner() == "mine"
    assert config.options.lost_bookie_delay_s == 5
    config = load_config(None, {}, {"advertisedAddress": "h", "bookiePort": "99"})
    assert config.daemon.owner() == "h:99"
