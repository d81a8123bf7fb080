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
    """Workers are tasks of the client."""

    def event(self) -> trio.Event:
        """Something to wait for."""
        return trio.Event()

    def lock(self) -> AbstractAsyncContextManager[None]:
        """None is needed: a task takes a message and puts it in its lane in one go."""
        return nullcontext()

    def worker(self) -> Hashable:
        """The task that runs now."""
        return trio.lowlevel.current_task()


def is_current(message: Message) -> bool:
    """Whether a message was not thrown away since it was received: by a lost connection, a seek or
    a redelivery of everything. It comes again then.
    """
    entry = message._entry
    return entry.generation == entry.source.generation


def lanes_for(options: ConsumerOptions) -> Lanes | None:
    """None if everything goes one after the other."""
    if options.message_listener_concurrency == 1:
        return None
    return Lanes(lanes_of(options.consumer_type), is_current)


async def call(listener: Callable[[Message], object], message: Message) -> None:
    """Call a listener, whether it is a coroutine function or not."""
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
    """Begin to call a consumer's listener."""
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
