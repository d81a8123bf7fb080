"""`geminga initialize-cluster-metadata` and Apache's command leave the same nodes."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Sequence
from contextlib import aclosing

import pytest
import trio
from click.testing import CliRunner

from compat_tests.apache.jars import java_command
from compat_tests.apache.zookeeper import ZooKeeperServer
from geminga_broker.cli_cluster import initialize_cluster_metadata
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

pytestmark = pytest.mark.java

Tree = dict[str, object]

FIRST = (
    "--cluster c1 --web-service-url http://h:8080 --broker-service-url pulsar://h:6650 "
    "--web-service-url-tls https://h:8443 --broker-service-url-tls pulsar+ssl://h:6651 -bn 3"
)
SECOND = (
    "-c c2 -uw http://i:8080 -pu pulsar+ssl://p:1 -pp SNI --auth-plugin a.B --auth-parameters x:y "
    "-te -bn 4 --initial-num-transaction-coordinators 20 "
    "--initial-num-stream-storage-containers 300"
)
BARE = "-c c1 -uw http://h:8080 --initial-num-stream-storage-containers 0"
NOBODY = "-md zk:127.0.0.1:1 -cms zk:127.0.0.1:1 --zookeeper-session-timeout-ms 100"
ADDRESSES = ("/stream", "/stream/servers", "/stream/servers/available")
"""Curator, by which Apache makes these parents, fills them with the address of its machine."""


def arguments(server: ZooKeeperServer, root: str, local: str, options: str) -> list[str]:
    """Two servers of an ensemble, which are one here; the second name is never resolved to
    another.
    """
    url = f"zk:127.0.0.1:{server.port},localhost:{server.port}/{root}"
    return [*options.split(), "-md", f"{url}/{local}", "-cms", f"{url}/shared"]


def apache(given: Sequence[str]) -> None:
    command = java_command("org.apache.pulsar.PulsarClusterMetadataSetup", given)
    done = subprocess.run(
        command,
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def ours(given: Sequence[str]) -> None:
    done = CliRunner().invoke(initialize_cluster_metadata, given, catch_exceptions=False)
    assert done.exit_code == 0, done.output


async def tree(server: ZooKeeperServer, root: str) -> Tree:
    """Every node beneath `root` and its value."""
    found: Tree = {}
    pending = ["/"]
    async with aclosing(await ZooKeeperMetadataStore.open(f"{server.url}/{root}")) as store:
        while pending:
            path = pending.pop()
            node = await store.get(path)
            assert node is not None
            found[path] = comparable(path, node.value, root)
            pending += [f"{path.rstrip('/')}/{name}" for name in await store.children(path)]
    return found


def comparable(path: str, value: bytes, root: str) -> object:
    if path.endswith("/INSTANCEID"):
        return uuid.UUID(value.decode()).version
    if path.partition("/stream")[1] and path.endswith(ADDRESSES):
        return None
    text = value.decode("latin-1").replace(f"/{root}/", "/ROOT/")
    return json.loads(text) if text.startswith("{") else text


async def test_the_nodes_are_those_of_apache(server: ZooKeeperServer) -> None:
    """A cluster, then another one that shares its configuration."""
    for local, options in (("one", FIRST), ("two", SECOND)):
        for root, run in (("apache", apache), ("ours", ours)):
            await trio.to_thread.run_sync(run, arguments(server, root, local, options))
    theirs, made = await tree(server, "apache"), await tree(server, "ours")
    assert len(theirs) > 40
    assert sorted(made) == sorted(theirs)
    assert {path: value for path, value in made.items() if value != theirs[path]} == {}


async def test_without_stream_storage(server: ZooKeeperServer) -> None:
    for root, run in (("apache-bare", apache), ("ours-bare", ours)):
        await trio.to_thread.run_sync(run, arguments(server, root, "one", BARE))
    theirs, made = await tree(server, "apache-bare"), await tree(server, "ours-bare")
    assert "/one/pulsar/functions" in theirs
    assert made == theirs


async def test_a_set_up_that_was_interrupted_is_finished(server: ZooKeeperServer) -> None:
    """What is there stays as it is, also an instance's id."""
    given = arguments(server, "again", "one", FIRST)
    await trio.to_thread.run_sync(ours, given)
    async with aclosing(await ZooKeeperMetadataStore.open(f"{server.url}/again")) as store:
        kept = {path: await store.get(path) for path in await tree(server, "again")}
        await store.delete("/one/bookies")
        await store.delete("/shared/admin/policies/pulsar/system")
        await trio.to_thread.run_sync(ours, given)
        remade = {path for path, node in kept.items() if await store.get(path) != node}
    assert sorted(kept) == sorted(await tree(server, "again"))
    assert remade == {"/one/bookies", "/shared/admin/policies/pulsar/system"}


def test_an_existing_cluster_keeps_its_settings(server: ZooKeeperServer) -> None:
    """By the options of Apache's old releases, without a scheme."""
    store = f"127.0.0.1:{server.port}/old"
    given = ["-c", "a", "--zookeeper", store, "--configuration-store", store, "-uw"]
    ours([*given, "http://one:8080"])
    done = CliRunner().invoke(initialize_cluster_metadata, [*given, "http://two:8080"])
    assert done.exit_code == 0
    assert "Warning: 'a' exists and keeps its serviceUrl\n" in done.output
    done = CliRunner().invoke(initialize_cluster_metadata, [*given, "http://one:8080"])
    assert "Warning" not in done.output


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("-c a/b -uw http://h -md zk:127.0.0.1:{} -cms zk:127.0.0.1:{}", "not a name of a cluster"),
        ("-c a -uw http://h -md zk: -cms zk:127.0.0.1:{}", "is not HOST or HOST:PORT"),
        ("-c a -uw http://h -md zk:h -cms rocksdb:x", "doesn't start with 'zk:'"),
        (f"-c a -uw http://h {NOBODY}", "'zk:127.0.0.1:1': no session with ZooKeeper"),
        ("-c a -md zk:h -cms zk:h -uw h:8080", "'h:8080' is not http://HOST:PORT"),
        ("-c a -md zk:h -cms zk:h -uw http://", "'http://' is not http://HOST:PORT"),
        ("-c a -md zk:h -cms zk:h -uw http://h -tw http://h", "is not https://HOST:PORT"),
        ("-c a -md zk:h -cms zk:h -uw http://h -ub http://h", "is not pulsar://HOST:PORT"),
        ("-c a -md zk:h -cms zk:h -uw http://h -tb pulsar://h", "is not pulsar+ssl://HOST:PORT"),
        ("-c a -md zk:h -cms zk:h", "--web-service-url"),
    ],
)  # fmt: skip
def test_refusals(server: ZooKeeperServer, options: str, reason: str) -> None:
    given = options.format(server.port, server.port).split()
    done = CliRunner().invoke(initialize_cluster_metadata, given)
    assert done.exit_code == (1 if NOBODY in options else 2), "one that may come by itself"
    assert reason in done.output
