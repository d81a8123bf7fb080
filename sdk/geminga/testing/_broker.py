"""Starting and stopping the broker under test. Only this module imports the server's packages, and
only on use.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from geminga.cli import missing_module

if TYPE_CHECKING:
    import trio

    from geminga_broker.standalone_parts import StandaloneOptions

Settings = Mapping[str, str | int | float | bool]

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
_FIXED = {
    "bindAddress": "127.0.0.1",
    "brokerServicePort": "0",
    "webServicePort": "0",
    "loadBalancerEnabled": "false",
}


class BrokerStartFailed(Exception):
    """The broker under test could not be started, or did not stop; see the cause."""


class BrokerUrl(str):
    """The service URL of a broker under test, for `connect`."""

    __slots__ = ("web_url",)
    web_url: str
    """URL of its REST API and metrics, `http://host:port`."""


@contextmanager
def broker(settings: Settings | None = None, *, brokers: int = 1) -> Generator[BrokerUrl]:
    """A running broker in its own thread; stopped at the block's end.

    `settings` are keys of `broker.conf`, with texts, numbers or booleans. The environment is
    ignored. Several `brokers` share the topics, each in a process of its own; lookups at the one
    URL are answered with theirs. Raises BrokerStartFailed.
    """
    thread = _BrokerThread(settings or {}, brokers)
    url = thread.start()
    try:
        yield url
    finally:
        thread.stop()


@asynccontextmanager
async def open_broker(
    settings: Settings | None = None, *, brokers: int = 1
) -> AsyncGenerator[BrokerUrl]:
    """`broker` in the running Trio loop: without a thread, and it stops with the test."""
    import trio

    if not trio.lowlevel.in_trio_run():
        raise BrokerStartFailed(
            "open_broker is for tests that run in Trio: use `with geminga.testing.broker() as url` "
            "in asyncio, and without an event loop"
        )
    options = _options(settings or {}, brokers)
    from geminga_broker.processes.parent import run_brokers
    from geminga_broker.standalone import run_standalone

    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        running = await nursery.start(run_standalone if brokers == 1 else run_brokers, options)
        url = BrokerUrl(running.broker_url)
        url.web_url = running.web_url
        try:
            yield url
        except BaseException as error:  # noqa: ASYNC103
            # Raised again outside: the test's error must not be wrapped in a group.
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


MISSING = "the broker's packages are missing ({}): install geminga[server]"


def _options(settings: Settings, brokers: int) -> StandaloneOptions:
    if brokers < 1:
        raise BrokerStartFailed(f"brokers: {brokers} is less than one")
    try:
        from geminga_broker.config import load_config
        from geminga_broker.standalone_parts import StandaloneOptions, defaults_of
    except ImportError as error:
        raise BrokerStartFailed(MISSING.format(error.name)) from error
    texts = {key: _text(key, value) for key, value in settings.items()}
    defaults = {**_FIXED, **defaults_of(brokers)}
    config = load_config(None, {}, texts, defaults=defaults, overrides_from="settings")
    return StandaloneOptions(config, None, brokers)


def _text(key: str, value: object) -> str:
    """A setting in the form of `broker.conf`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise BrokerStartFailed(f"{key} in settings: {value!r} is neither a text nor a number")


class _BrokerThread:
    """One broker and its thread."""

    def __init__(self, settings: Settings, brokers: int) -> None:
        self._settings = settings
        self._brokers = brokers
        self._started: SimpleQueue[BrokerUrl | BaseException] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="geminga-broker", daemon=True)
        self._pid = os.getpid()
        self._error: BaseException | None = None
        self._stop: tuple[trio.lowlevel.TrioToken, trio.CancelScope] | None = None

    def start(self) -> BrokerUrl:
        """Wait until it is ready. Raises BrokerStartFailed."""
        self._thread.start()
        try:
            outcome = self._started.get(timeout=START_TIMEOUT_S)
        except Empty:
            raise BrokerStartFailed(f"the broker did not start in {START_TIMEOUT_S} s") from None
        if isinstance(outcome, BrokerUrl):
            return outcome
        self._thread.join(STOP_TIMEOUT_S)  # the error was its last word
        if isinstance(outcome, BrokerStartFailed):
            raise outcome
        missing = missing_module(outcome)
        if missing is not None:
            raise BrokerStartFailed(MISSING.format(missing)) from outcome
        raise BrokerStartFailed(f"the broker did not start: {outcome}") from outcome

    def stop(self) -> None:
        """Stop it, and wait for its end. Raises BrokerStartFailed if it has failed."""
        if os.getpid() != self._pid or self._stop is None:
            # In a forked child: the thread and the broker are the parent's.
            return
        token, scope = self._stop
        if self._thread.is_alive():
            token.run_sync_soon(scope.cancel)
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise BrokerStartFailed(f"the broker did not stop in {STOP_TIMEOUT_S} s")
        if self._error is not None:
            raise BrokerStartFailed(f"the broker failed: {self._error}") from self._error

    def _run(self) -> None:
        import trio

        try:
            trio.run(self._serve)
        except BaseException as error:  # noqa: ASYNC103
            self._error = error
            self._started.put(error)

    async def _serve(self) -> None:
        import trio

        with trio.CancelScope() as scope:
            self._stop = trio.lowlevel.current_trio_token(), scope
            async with open_broker(self._settings, brokers=self._brokers) as url:
                self._started.put(url)
                await trio.sleep_forever()
