"""Servers for the tests that face other people's software: ours, and Apache's as the oracle."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.apache.server import start_apache
from compat_tests.missing import APACHE, skipped_without
from compat_tests.peers import prepare
from compat_tests.processes import ServerProcess, start_geminga

# Off by default in Apache's broker.conf, and wanted by the batch-index tests on both servers;
# quotas are looked after each minute by default.
SETTINGS = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "backlogQuotaCheckIntervalInSeconds": "1",
}


def pytest_configure() -> None:
    """A shell that runs tests in the background has them ignore SIGINT. Servers would inherit that,
    and those of Java could not be stopped by it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch Apache's jars before the first test: Maven may need longer than a test is given."""
    if session.config.option.collectonly:
        return
    names = {mark.name for item in session.items for mark in item.iter_markers()}
    prepare(apache="java" in names, spark="spark" in names)  # the tests tell what is missing


@pytest.fixture(
    scope="session", params=["geminga", pytest.param("apache", marks=[pytest.mark.java])]
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A running standalone server; each test that asks for it runs against ours and Apache's."""
    folder = tmp_path_factory.mktemp(str(request.param))
    if request.param == "apache":
        with skipped_without(APACHE):
            running = start_apache(folder / "work", settings=SETTINGS)
    else:
        running = start_geminga(folder / "data", settings=SETTINGS)
    yield running
    ended_with = running.process.poll()
    tail = running.log_tail()
    if running.kind == "apache":
        running.kill()
    else:
        code = running.stop()
        assert ended_with is None, f"the server ended by itself with {ended_with}:\n{tail}"
        assert code == 0, f"the server stopped with code {code}:\n{running.log_tail()}"


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One ``geminga standalone`` for the tests that only our server has to pass."""
    running = start_geminga(tmp_path_factory.mktemp("standalone") / "data", settings=SETTINGS)
    yield running
    running.stop()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A folder, not yet made, for a server's data."""
    return tmp_path / "data"
