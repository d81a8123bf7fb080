"""The connector on a standalone cluster with two executors, on loopback (spec SP-09)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.processes import ROOT
from compat_tests.spark.cluster import Cluster, spark_cluster
from compat_tests.spark.environments import linked_environment
from compat_tests.spark.programs import run_program
from compat_tests.spark.topics import Pulsar
from geminga import schema

PROGRAM = "compat_tests.spark.cluster_program"
MESSAGES = 3000

Run = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers."""
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def source(pulsar: Pulsar) -> str:
    """A topic of two partitions with the numbers from 0 on, in several ledgers."""
    topic = pulsar.topic("cluster", partitions=2)
    for start in range(0, MESSAGES, MESSAGES // 2):
        numbers = range(start, start + MESSAGES // 2)
        pulsar.publish(topic, numbers, schema=schema.Int64(), per_batch=10)
        for part in pulsar.client.list_partitions(topic):
            pulsar.unload(part)
    return topic


@pytest.fixture
def namespace(pulsar: Pulsar) -> str:
    """Its broker knows what was written before."""
    return pulsar.namespace("cluster", deduplication=True)


@pytest.fixture
def target(pulsar: Pulsar, namespace: str) -> str:
    """A topic for what is read."""
    return pulsar.topic("copy", namespace=namespace)


@pytest.fixture
def run(cluster: Cluster, pulsar: Pulsar, source: str, target: str, tmp_path: Path) -> Run:
    """Run a scenario of the program on the cluster."""

    def answers(scenario: str, **more: Any) -> list[Any]:
        program = {
            "master": cluster.master_url,
            "folder": str(tmp_path / "spark"),
            "settings": cluster.settings(),
            "options": {"service.url": pulsar.url},
            "topic": source,
            "target": target,
            **more,
        }
        python = program.pop("python", sys.executable)
        return run_program(PROGRAM, scenario, json.dumps(program), timeout_s=500, python=python)

    return answers


def copied(pulsar: Pulsar, target: str) -> list[int]:
    """The numbers in the target, sorted."""
    return sorted(each.value for each in pulsar.messages(target, schema=schema.Int64()))


def test_all_executors_read_and_write_and_one_is_killed(
    run: Run, pulsar: Pulsar, namespace: str, target: str, cluster: Cluster
) -> None:
    """SIGKILL in the middle of a task: others do its work again, and all is there once."""
    again = pulsar.topic("again", namespace=namespace)
    by_executor, total, before = run("spread_and_killed", killed_target=again)
    assert len(by_executor) == 2, "one executor did it all"
    assert sum(by_executor) == MESSAGES
    assert total == sum(range(MESSAGES))
    assert copied(pulsar, target) == list(range(MESSAGES))
    assert before == 2
    assert copied(pulsar, again) == list(range(MESSAGES))
    workers = "".join(each.read_text() for each in sorted(cluster.folder.glob("worker-*.log")))
    assert re.search(r"Executor \S+ finished with state (EXITED|FAILED).*(137|signal 9)", workers)


def test_the_connector_comes_with_the_job(
    run: Run, pulsar: Pulsar, target: str, tmp_path: Path
) -> None:
    """Neither driver nor executors have it installed, only what it needs."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, check=True, cwd=ROOT, capture_output=True)
    (wheel,) = tmp_path.glob("geminga-*.whl")
    # A wheel is a zip file, and Spark knows these by their ending.
    zipped = wheel.rename(tmp_path / "geminga.zip")
    ours = ("geminga", "_editable_impl_geminga")
    python = str(linked_environment(tmp_path / "bare", without=ours))
    probe = "import pyspark, trio, msgspec; import geminga"
    done = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=False)
    assert "No module named 'geminga'" in done.stderr
    home, by_executor, total = run("shipped", python=python, wheel=str(zipped))
    assert home == "pyspark_pulsar._source"
    assert len(by_executor) == 2
    assert total == sum(range(MESSAGES))
    assert copied(pulsar, target) == list(range(MESSAGES))
