"""Message listeners in a Trio program (spec SDK-20)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager, nullcontext

import trio

from geminga._connection.core import Core
from geminga._consuming.lanes import Lanes, lanes_of
from geminga._consuming.listening import Listening
from geminga.message import Message
from geminga.options import ConsumerOptions


class TrioSurroundings:
    """Runs workers as tasks of the client."""

    def event(self) -> trio.Event:
        """A new event."""
        return trio.Event()

    def lock(self) -> AbstractAsyncContextManager[None]:
        """No lock: a task takes a message and puts it in its lane without a checkpoint."""
        return nullcontext()

    def worker(self) -> Hashable:
        """The current task."""
        return trio.lowlevel.current_task()


def is_current(message: Message) -> bool:
    """Whether a message was not dropped since it was received, by a lost connection, a seek or a
    redelivery of everything; then it comes again.
    """
    entry = message._entry
    return entry.generation == entry.source.generation


def lanes_for(options: ConsumerOptions) -> Lanes | None:
    """The lanes; None if all messages are handled one at a time."""
    if options.message_listener_concurrency == 1:
        return None
    return Lanes(lanes_of(options.consumer_type), is_current)


async def call(listener: Callable[[Message], object], message: Message) -> None:
    """Call a listener; it may be a coroutine function."""
    answer = listener(message)
    if isinstance(answer, Awaitable):
        await answer


def listen(
    core: Core,
    options: ConsumerOptions,
    receive: Callable[[], Awaitable[Message]],
    listener: Callable[[Message], object],
    refuse: Callable[[Message], object],
) -> Listening:
    """Start calling a consumer's listener."""
    concurrency = options.message_listener_concurrency
    listening = Listening(
        TrioSurroundings(),
        receive,
        lambda message: call(listener, message),
        refuse,
        lanes_for(options),
        concurrency,
    )
    for _ in range(concurrency):
        core.nursery.start_with_program(listening.work)
    return listening
