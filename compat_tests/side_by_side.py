"""A pytest plugin that spreads the tests over several workers (`make test`; pytest-xdist's `-n`).

A file's tests stay together, so that its fixtures are made once; so do those of packages that share
servers. Long groups go first, tests marked `alone` go last. A test marked `alone` (it measures
memory, CPU or time) waits until no other test runs, and none begins while it does.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

TOGETHER = ("compat_tests/clients/", "compat_tests/spark/")
"""Packages whose tests share servers and engines that take long to start."""

FIRST = (*TOGETHER, "compat_tests/", "broker_core/", "sdk/")
"""The longest parts: they begin first."""

COMPILED = Path(__file__).parent / "__pycache__"
"""Holds the tests of this package, which are collected last, once all tests are compiled."""

ALONE = "alone"
LOCKS = "GEMINGA_TEST_LOCKS"
"""The folder of the locks; workers inherit it from the process that starts them."""


def group_of(path: str) -> str:
    """The group of a test file: its package if that shares servers, else the file itself."""
    return next((package for package in TOGETHER if path.startswith(package)), path)


def rank(path: str) -> int:
    """Lower ones begin earlier."""
    return next((at for at, prefix in enumerate(FIRST) if path.startswith(prefix)), len(FIRST))


class Groups(LoadScopeScheduling):
    """Hands out whole groups, in the order in which they were collected."""

    alone: frozenset[str] = frozenset()

    def _split_scope(self, nodeid: str) -> str:
        return ALONE if nodeid in self.alone else group_of(nodeid.partition("::")[0])

    def remove_node(self, node: WorkerController) -> str | None:
        """A test that ended its worker is not run again; xdist would hand it out without end."""
        units = self.assigned_work[node].values()
        pending = [(unit, name) for unit in units for name, is_done in unit.items() if not is_done]
        if pending:
            unit, crashed = pending[0]
            unit[crashed] = True
        super().remove_node(node)
        return crashed if pending else None


class Controller:
    """In the process that hands out tests."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="geminga-tests-")
        os.environ[LOCKS] = self._folder.name

    def pytest_xdist_make_scheduler(
        self, config: pytest.Config, log: object
    ) -> LoadScopeScheduling:
        """Our own; tests are handed out in the order of their collection."""
        config.option.loadscopereorder = False
        self.scheduler = Groups(config, log)
        return self.scheduler

    def pytest_xdist_node_collection_finished(
        self, node: WorkerController, ids: Sequence[str]
    ) -> None:
        """The workers' list of tests that run alone comes in a file."""
        listed = Path(os.environ[LOCKS]) / node.gateway.id
        if listed.exists():
            self.scheduler.alone = frozenset(listed.read_text().splitlines())

    def pytest_unconfigure(self) -> None:
        """Remove the folder."""
        del os.environ[LOCKS]
        self._folder.cleanup()


class Worker:
    """In a process that runs tests."""

    def __init__(self, folder: Path, name: str) -> None:
        self._turn = (folder / "turn").open("w")
        self._tests = (folder / "tests").open("w")
        self._collecting = (folder / "collecting").open("w")
        self._listed = folder / name

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Iterator[None]:
        """Where no test is compiled yet, one worker does that for all. What was collected stays
        until the end: nobody looks through it for garbage, which takes half a second each time.
        """
        is_new = not sys.dont_write_bytecode and not any(COMPILED.glob("test_*-pytest-*.pyc"))
        how = fcntl.LOCK_EX if is_new else fcntl.LOCK_SH
        gc.disable()
        try:
            with locked(self._collecting, how, turn=self._turn):
                return (yield)
        finally:
            gc.enable()
            gc.collect()
            gc.freeze()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort the tests, and tell which run alone."""
        alone = {item.nodeid for item in items if item.get_closest_marker(ALONE)}
        items.sort(key=lambda item: (item.nodeid in alone, rank(item.nodeid)))
        self._listed.write_text("\n".join(sorted(alone)))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Let others run beside the test, or nobody. Who waits to be alone keeps the turn, so that
        it isn't passed by.
        """
        how = fcntl.LOCK_EX if item.get_closest_marker(ALONE) else fcntl.LOCK_SH
        with locked(self._tests, how, turn=self._turn):
            return (yield)


@contextlib.contextmanager
def locked(file: IO[str], how: int, *, turn: IO[str]) -> Iterator[None]:
    """Hold a lock, and the turn while waiting for it."""
    fcntl.flock(turn, fcntl.LOCK_EX)
    try:
        fcntl.flock(file, how)
    finally:
        fcntl.flock(turn, fcntl.LOCK_UN)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def pytest_configure(config: pytest.Config) -> None:
    """Register what this process needs; nothing without `-n`."""
    name = os.environ.get("PYTEST_XDIST_WORKER")
    if hasattr(config, "workerinput"):
        assert name is not None
        config.pluginmanager.register(Worker(Path(os.environ[LOCKS]), name))
    elif config.getoption("numprocesses"):
        config.pluginmanager.register(Controller())
