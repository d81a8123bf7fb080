"""Rows about ledgers, without a broker: recovery after a writer died, copies after a bookie died.

Geminga's column is our client, and our auto-recovery, on our bookies; Apache's are all Apache's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from compat_tests.apache.cluster import Cluster, running_cluster
from compat_tests.apache.jars import java_command
from compat_tests.apache.our_bookie import OurBookie
from compat_tests.bench.model import APACHE, GEMINGA, Measure, Row
from compat_tests.bench.side import LoadFailed, Side, run_program, settle
from compat_tests.processes import ROOT, geminga_command, spawn

_REPAIR_TIMEOUT_S = 600.0


def recovery(side: Side) -> Mapping[str, float]:
    """Of a ledger whose entries all stand beyond the LAC; the second one of a process."""
    figures = _recovery(side, client=side.kind, bookies=side.kind)
    mixed = figures
    if side.kind == GEMINGA:
        mixed = _recovery(side, client=GEMINGA, bookies=APACHE)
    return {"recover_s": figures["recover_s"], "mixed_recover_s": mixed["recover_s"]}


def _recovery(side: Side, *, client: str, bookies: str) -> Mapping[str, float]:
    entries = 2_000 if side.quick else 100_000
    with _bookies(side, 3, bookies) as cluster:
        ledgers = []
        for _ in range(2):
            made = _run(cluster, "unconfirmed", entries=entries)
            ledgers.append(int(made["ledger"]))
        settle(side.seconds(5, 0))
        if client == GEMINGA:
            options = [f"--ledger={ledger_id}" for ledger_id in ledgers]
            found = run_program([*_command(cluster, "recover"), *options])
        else:
            uri = f"zk+hierarchical://127.0.0.1:{cluster.zookeeper.port}/ledgers"
            found = run_program(
                java_command(
                    "Ledgers", [uri, "recover", *map(str, ledgers)], heap_mb=512, lean=False
                )
            )
    if found["last"] != entries - 1:
        raise LoadFailed(f"recovery ended at {found['last']:g} of {entries}")
    return found


def re_replication(side: Side) -> Mapping[str, float]:
    """One of four bookies is killed; the time between the first task and the end of the last."""
    mb = 2 if side.quick else 128
    with _bookies(side, 4, side.kind) as cluster, _auto_recovery(side, cluster):
        _run(cluster, "write", mb=mb, size=16_384)
        lost = cluster.bookies[-1]
        watcher = subprocess.Popen(
            [*_command(cluster, "repaired"), f"--lost={lost.bookie_id}"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        with watcher:
            try:
                assert watcher.stdout is not None
                watcher.stdout.readline()
                lost.kill()
                output, _ = watcher.communicate(timeout=_REPAIR_TIMEOUT_S)
            except BaseException:
                watcher.kill()
                raise
        found: dict[str, float] = json.loads(output.splitlines()[-1])
        return found


@contextmanager
def _bookies(side: Side, count: int, kind: str) -> Iterator[Cluster]:
    side.stop()
    folder = side.new_folder("cluster")
    with running_cluster(
        folder, count, lean=False, ours=count if kind == GEMINGA else 0
    ) as cluster:
        yield cluster
    side.forget("cluster")


def _command(cluster: Cluster, mode: str) -> list[str]:
    program = [sys.executable, "-m", "compat_tests.bench.ledger_load", mode]
    return [*program, f"--url={cluster.zookeeper.url}"]


def _run(cluster: Cluster, mode: str, **options: int) -> Mapping[str, float]:
    arguments = [f"--{name}={value}" for name, value in options.items()]
    return run_program([*_command(cluster, mode), *arguments])


@contextmanager
def _auto_recovery(side: Side, cluster: Cluster) -> Iterator[None]:
    """An auditor and a worker: one process of ours, two of Apache's."""
    one = cluster.bookies[0]
    if isinstance(one, OurBookie):
        commands = [[*geminga_command(), "autorecovery", "--config", str(one.config)]]
    else:
        config = str(one.folder / "bookie.conf")
        commands = [
            java_command("Recovery", [config, *what], heap_mb=512, lean=False)
            for what in (["auditor", "auditor:3181"], ["worker"])
        ]
    with ExitStack() as stack:
        for number, command in enumerate(commands):
            log = side.work_dir / f"{side.kind}-auto-recovery-{number}"
            process = spawn(command, log_path=log, cwd=ROOT)
            stack.callback(process.wait)
            stack.callback(process.kill)
        settle(side.seconds(10, 3))
        yield


RECOVERY_ROWS: tuple[Row, ...] = (
    Row(
        "cluster-recovery",
        "Recovery of a ledger with 100 000 entries of 100 B beyond the LAC, E 3, Wq 3, Aq 2",
        recovery,
        (
            Measure("recover_s", "time until it is closed", "s", ratio_max=1.0),
            Measure(
                "mixed_recover_s",
                "time until it is closed, our client on Apache's bookies",
                "s",
                ratio_max=1.0,
            ),
        ),
    ),
    Row(
        "cluster-re-replication",
        "Eight ledgers of 128 MB in entries of 16 KiB on three of four bookies, one killed",
        re_replication,
        (
            Measure("mb_per_s", "copied", "MB/s", ratio_min=1.0),
            Measure("repaired_mb", "in all", "MB"),
        ),
    ),
)
