"""Bookies of ours as processes of a cluster: under Apache's broker with the official client, beside
Apache's bookie in one ensemble, and as Apache's `bookkeeper shell` sees them.
"""

from __future__ import annotations

import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pulsar
import pytest
import trio

from compat_tests.apache.bookie import ApacheBookie, launch_bookie, start_metadata
from compat_tests.apache.cluster import killed_at_end
from compat_tests.apache.jars import run_java
from compat_tests.apache.our_bookie import OurBookie
from compat_tests.apache.server import start_apache_broker
from compat_tests.apache.shells import SHELL_LOGGING, disks_by
from compat_tests.apache.zookeeper import ZooKeeperServer
from compat_tests.missing import APACHE, skipped_without
from compat_tests.processes import ROOT, ServerProcess, free_port, spawn, wait_until
from geminga_bookie._tests.support import add
from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.append import append_durably
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.errors import NoSuchLedger
from geminga_bookie.registered import open_registered_bookies
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import open_remote
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

pytestmark = pytest.mark.java

WAIT_S = 60.0
GIB = 1 << 30
UNKNOWN_LEDGER = 1 << 40
_OF_EACH = ("cookie_get",)
PASSWORD = b"secret"
READER = {"bookieId": "reader-1", "forceReadOnlyBookie": "true"}
PATIENCE = RemoteOptions(add_timeout_s=30, read_timeout_s=30, connect_timeout_s=30)


@dataclass
class Cluster:
    """Three bookies, and a fourth that only serves reads."""

    zookeeper: ZooKeeperServer
    bookies: list[OurBookie] = field(default_factory=list)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[tuple[BookkeeperClient, ZooKeeperMetadataStore]]:
        async with (
            aclosing(await ZooKeeperMetadataStore.open(self.zookeeper.url)) as store,
            open_registered_bookies(store, PATIENCE) as bookies,
            trio.open_nursery() as nursery,
        ):
            yield BookkeeperClient(bookies, store, nursery=nursery), store
            nursery.cancel_scope.cancel()

    def run(self, *arguments: str, flags: Sequence[str] = ()) -> str:
        """What a Java program of the tests prints."""
        return run_java(arguments[0], arguments[1:], flags=flags, timeout_s=120)

    def shell(self, *commands: str) -> list[str]:
        """What each command of `bookkeeper shell` prints."""
        config = self.bookies[0].config
        logging = config.with_name("log4j2.xml")
        logging.write_text(SHELL_LOGGING)
        flag = f"-Dlog4j2.configurationFile={logging}"
        text = self.run("Shell", str(config), *commands, flags=[flag])
        return [part.partition("\n")[2] for part in re.split(r"^== ", text, flags=re.MULTILINE)][1:]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with skipped_without(APACHE):
        found = Cluster(start_metadata(folder / "zookeeper"))
    with killed_at_end(found.zookeeper, found.bookies):
        settings = {"gcWaitTime": "500"}
        for number in range(3):
            found.bookies.append(OurBookie(folder / str(number), found.zookeeper, settings))
        found.bookies.append(OurBookie(folder / "reader", found.zookeeper, READER))
        for bookie in found.bookies:
            bookie.start()
        for bookie in found.bookies:
            bookie.wait()
        yield found


@pytest.fixture(scope="module")
def broker(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    started = start_apache_broker(tmp_path_factory.mktemp("broker"), cluster.zookeeper.url)
    yield started
    started.kill()


@pytest.fixture(scope="module")
def apache(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheBookie]:
    bookie = launch_bookie(tmp_path_factory.mktemp("apache"), cluster.zookeeper)
    bookie.wait()
    yield bookie
    bookie.kill()


class Publisher:
    """Keeps messages in flight, and counts receipts."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.producer = client.create_producer(
            topic, send_timeout_millis=120_000, max_pending_messages=200,
            block_if_queue_full=True, batching_enabled=False,
        )  # fmt: skip
        self.sent = 0
        self.receipts: list[str] = []
        self.failures: list[pulsar.Result] = []

    def send(self, count: int) -> None:
        """Without waiting for the receipts of the last ones."""
        for _ in range(count):
            text = str(self.sent)

            def done(result: pulsar.Result, _id: object, text: str = text) -> None:
                if result == pulsar.Result.Ok:
                    self.receipts.append(text)
                else:
                    self.failures.append(result)

            self.producer.send_async(text.encode(), done)
            self.sent += 1


def test_apaches_broker_loses_nothing_when_ours_are_killed(
    cluster: Cluster, broker: ServerProcess
) -> None:
    """Of three bookies each ledger has two. Two are killed one after the other, while adds are in
    flight, and started again on what they left.
    """
    client = pulsar.Client(broker.service_url, operation_timeout_seconds=60)
    try:
        topic = "persistent://public/default/on-ours"
        consumer = client.subscribe(topic, "s")
        publisher = Publisher(client, topic)
        for bookie in cluster.bookies[:2]:
            publisher.send(500)
            bookie.kill()
            publisher.send(500)
            bookie.start()
            bookie.wait()
        publisher.send(500)
        publisher.producer.flush()
        wait_until(  # the official client's flush may be done before the last callbacks
            lambda: len(publisher.receipts) == 2500 or bool(publisher.failures),
            broker.process,
            broker.log_path,
            timeout_s=WAIT_S,
        )
        assert (len(publisher.receipts), publisher.failures) == (2500, [])
        got = set()
        while len(got) < 2500:
            message = consumer.receive(timeout_millis=60_000)
            got.add(message.data().decode())
            consumer.acknowledge(message)
        assert got == set(publisher.receipts)
    finally:
        client.close()


async def test_a_ledger_on_both_kinds_is_recovered_by_apaches_client(
    cluster: Cluster, apache: ApacheBookie
) -> None:
    async with cluster.client() as (client, _):
        writer = await client.create(LedgerOptions(4, 3, 2, password=PASSWORD))
        for first in range(0, 300, 50):
            await append_durably(writer, [[b"%d" % n] for n in range(first, first + 50)])
        ledger_id = writer.ledger_id
        members = (await client.metadata(ledger_id)).ensembles[0]
        uri = f"zk+hierarchical://127.0.0.1:{cluster.zookeeper.port}/ledgers"
        found = await trio.to_thread.run_sync(cluster.run, "Ledgers", uri, "read", str(ledger_id))
        await client.delete(ledger_id)  # four bookies, which aren't always there
    assert set(members) == {apache.bookie_id, *(each.bookie_id for each in cluster.bookies[:3])}
    assert found.split() == ["299", *map(str, range(300))]


async def test_what_apaches_shell_says_of_ours(cluster: Cluster, apache: ApacheBookie) -> None:
    """The same as of its own bookie."""
    async with cluster.client() as (client, store):
        writer = await client.create(LedgerOptions(3, 3, 2, password=PASSWORD))
        await append_durably(writer, [[b"hello"], [b"you"]])
        await writer.close()
        node = await store.get(paths.INSTANCE_ID)
        ledger_id = writer.ledger_id
        members = (await client.metadata(ledger_id)).ensembles[0]
    ours, reader = cluster.bookies[0], cluster.bookies[3]
    writable = [apache.bookie_id, *(each.bookie_id for each in cluster.bookies[:3])]
    asked = [f"{what} {each}" for what in _OF_EACH for each in (ours.bookie_id, apache.bookie_id)]
    found = await trio.to_thread.run_sync(
        cluster.shell,
        "whatisinstanceid",
        "listbookies -rw",
        "listbookies -ro",
        f"ledgermetadata -ledgerid {ledger_id}",
        f"readledger -ledgerid {ledger_id} -msg -force-recovery",
        "listunderreplicated",
        *asked,
    )
    instance, listed, read_only, metadata, entries, lacking, *of_each = found
    info = await trio.to_thread.run_sync(disks_by, cluster.shell)
    assert node is not None
    assert instance.rstrip().endswith(f"InstanceId: {node.value.decode()}")
    assert sorted(_lines(listed)[1:]) == sorted(map(_listed, writable))
    assert _lines(read_only)[1:] == [f"BookieID:reader-1, {_place(reader.port)}"]
    shown = re.findall(r"^BookieID:(\S+), .*Free: (\d+)\(.*Total: (\d+)\(", info, re.MULTILINE)
    assert sorted(each for each, _, _ in shown) == sorted([*writable, "reader-1"])
    assert len({total for _, _, total in shown}) == 1  # of Apache's bookie on the same disk too
    assert max(int(free) for _, free, _ in shown) - min(int(free) for _, free, _ in shown) < GIB
    assert f"ensembles={{0=[{', '.join(members)}]}}" in metadata
    assert "state=CLOSED, length=8, lastEntryId=1, digestType=CRC32C" in metadata
    assert [line for line in _lines(entries) if "---" not in line] == ["hello", "you"]
    assert await _our_shell(cluster, ledger_id, "readledger", "-m") == _lines(entries)
    if apache.bookie_id in members:
        of_one = await _our_shell(cluster, ledger_id, "readledger", "-m", "-b", apache.bookie_id)
        assert of_one == _lines(re.sub(", EntrySize=[0-9]+", "", entries))
    told = re.sub("formatVersion=3, |password=[^,]*, ", "", _lines(metadata)[-1])
    assert told in await _our_shell(cluster, ledger_id, "ledgermetadata")
    assert _lines(lacking) == ["Under replicated ledger count: 0"]
    for about_ours, about_apaches in zip(of_each[::2], of_each[1::2], strict=True):
        theirs = about_apaches.replace(str(apache.folder), str(ours.folder))
        assert about_ours == theirs.replace(str(apache.port), str(ours.port))
        assert str(ours.port) in about_ours


async def _our_shell(cluster: Cluster, ledger_id: int, name: str, *options: str) -> list[str]:
    uri = f"zk+hierarchical://127.0.0.1:{cluster.zookeeper.port}/ledgers"
    command = [sys.executable, "-c", "from geminga_bookie.cli import bookieshell as s; s()"]
    done = await trio.run_process(
        [*command, name, "-l", str(ledger_id), "--metadata-store", uri, *options],
        capture_stdout=True,
    )
    return _lines(done.stdout.decode())


def _lines(text: str) -> list[str]:
    return text.strip().splitlines()


def _listed(bookie_id: str) -> str:
    return f"BookieID:{bookie_id}, {_place(int(bookie_id.rpartition(':')[2]))}"


def _place(port: int) -> str:
    return f"IP:127.0.0.1, Port:{port}, Hostname:localhost"


async def registered(cluster: Cluster, bookie: OurBookie) -> bool:
    async with cluster.client() as (_, store):
        return await store.exists(f"{paths.available()}/{bookie.bookie_id}")


async def until_registered(cluster: Cluster, bookie: OurBookie, *, wanted: bool = True) -> None:
    with trio.fail_after(WAIT_S):
        while await registered(cluster, bookie) != wanted:  # noqa: ASYNC110 - another process
            await trio.sleep(0.2)


async def test_deleted_ledgers_are_collected_others_are_not(cluster: Cluster) -> None:
    async with cluster.client() as (client, store):
        ids = []
        for _ in range(2):
            writer = await client.create(LedgerOptions(3, 3, 2, password=PASSWORD))
            await append_durably(writer, [[b"entry"]])
            await writer.close()
            ids.append(writer.ledger_id)
        kept, deleted = ids
        members = (await client.metadata(deleted)).ensembles[0]
        await client.delete(deleted)
        ours = [each.bookie_id for each in cluster.bookies if each.bookie_id in members]
        assert ours
        async with open_registered_bookies(store, PATIENCE) as bookies:
            for bookie_id in ours:
                with trio.fail_after(WAIT_S), pytest.raises(NoSuchLedger):
                    while True:
                        await bookies.port(bookie_id).read(deleted, 0, entries_max=1, bytes_max=1)
                        await trio.sleep(0.05)
        reader = await client.open(kept, PASSWORD, recover=False)
        assert [bytes(each) for each in await reader.read(0, 0)] == [b"entry"]


async def test_it_registers_again_when_its_session_has_ended(cluster: Cluster) -> None:
    bookie = cluster.bookies[2]
    bookie.signal(signal.SIGSTOP)
    try:
        await until_registered(cluster, bookie, wanted=False)
    finally:
        bookie.signal(signal.SIGCONT)
    await until_registered(cluster, bookie)


async def test_they_serve_while_zookeeper_is_away(cluster: Cluster) -> None:
    """Longer than their sessions live. Nothing is collected meanwhile, although nothing is known of
    the ledger; later it is.
    """
    bookie = cluster.bookies[0]
    async with open_remote(bookie.bookie_id, "127.0.0.1", bookie.port, PATIENCE) as port:
        cluster.zookeeper.pause()
        try:
            await add(port, UNKNOWN_LEDGER, range(3))
            for _ in range(14):
                await trio.sleep(0.5)
                found = await port.read(UNKNOWN_LEDGER, 0, entries_max=3, bytes_max=1 << 20)
                assert len(found) == 3
        finally:
            cluster.zookeeper.resume()
        for each in cluster.bookies[:3]:
            await until_registered(cluster, each)
        with trio.fail_after(WAIT_S), pytest.raises(NoSuchLedger):
            while True:
                await port.read(UNKNOWN_LEDGER, 0, entries_max=1, bytes_max=1)
                await trio.sleep(0.05)


async def test_it_stops_in_order_and_never_starts_without_its_disks(
    cluster: Cluster, apache: ApacheBookie
) -> None:
    """Until its ledgers have been recovered on others."""
    bookie = cluster.bookies[2]
    assert bookie.stop() == 0
    assert not await registered(cluster, bookie)
    kept = bookie.folder / "kept"
    bookie.entries.rename(kept)
    assert "is empty although its bookie has stored before" in bookie.refusal()
    shutil.rmtree(bookie.entries)
    kept.rename(bookie.entries)
    bookie.start()
    bookie.wait()
    bookie.kill()
    shutil.rmtree(bookie.entries)
    shutil.rmtree(bookie.journal)
    for _ in range(2):
        assert "but its directories are empty" in bookie.refusal()
    await trio.to_thread.run_sync(cluster.shell, f"recover -force -deleteCookie {bookie.bookie_id}")
    async with cluster.client() as (client, _):
        ledgers = [each async for each in client.ledgers()]
        for ledger_id in ledgers:
            ensembles = (await client.metadata(ledger_id)).ensembles
            assert bookie.bookie_id not in {each for one in ensembles.values() for each in one}
        assert ledgers
    bookie.start()
    bookie.wait()


def test_apaches_bookie_refuses_our_directories(cluster: Cluster, tmp_path: Path) -> None:
    bookie = cluster.bookies[1]
    bookie.kill()
    settings = {
        "journalDirectories": str(bookie.journal),
        "ledgerDirectories": str(bookie.entries),
    }
    theirs = launch_bookie(tmp_path, cluster.zookeeper, settings)
    log = tmp_path / "log"
    try:
        assert theirs.process.wait(WAIT_S) != 0
        assert "data of a Geminga bookie" in log.read_text()
    finally:
        theirs.kill()


async def test_the_command_of_the_documents(cluster: Cluster, tmp_path: Path) -> None:
    """The last one: a ledger that is made meanwhile may be on this bookie, which is gone then."""
    text = (ROOT / "docs" / "OPERATIONS.md").read_text()
    [line] = re.findall(r"^\$ geminga (bookie .*)$", text, re.MULTILINE)
    port = free_port()
    line = line.replace("zk:one:2181,two:2181/mine", cluster.zookeeper.url)
    line = line.replace("/var/lib/geminga/bookie", str(tmp_path / "data"))
    line = line.replace("--advertised-address one", f"--advertised-address 127.0.0.1 --port {port}")
    log = tmp_path / "log"
    process = spawn([sys.executable, "-m", "geminga.cli", *line.split()], log_path=log, cwd=ROOT)
    try:
        ready = f"s: bookie://127.0.0.1:{port} data={tmp_path}/data/journal,{tmp_path}/data/ledgers"
        wait_until(lambda: ready in log.read_text(), process, log, timeout_s=WAIT_S)
        process.terminate()
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()
