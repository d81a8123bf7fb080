"""Two brokers that both hold themselves for a topic's owner, in all orders of their calls of the
store: the one that loaded it last has it (CL-04, CL-13; decision 36).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_broker.log._tests.two_brokers import (
    OPERATIONS,
    Broker,
    TwoBrokers,
    acknowledge,
    delete_topic,
    load,
    publish_one,
)
from geminga_broker.log.api import LogError

Operation = Callable[[Broker], Awaitable[None]]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.slow
async def test_the_old_owner_stands_still_in_its_operation(
    operation: Operation, late: bool, autojump_clock: MockClock
) -> None:
    """It is stopped at each call, another broker takes the topic and serves, it goes on."""
    at, halted = 0, True
    while halted:
        world = TwoBrokers()
        async with world.broker(first=True) as old, world.broker() as new:
            await world.begin(old)
            async with trio.open_nursery() as nursery:
                old.store.halt(at, late=late)
                # What a version can't tell: another node of the same name.
                old.store.expires = operation is delete_topic
                nursery.start_soon(_try, operation, old)
                await wait_all_tasks_blocked()
                halted = old.store.halted.is_set()
                await new.serve("a")
                old.store.go.set()
                await wait_all_tasks_blocked()
                await _serve(operation, old, new, "b")
        await world.check()
        at += 1
    assert at > 1 or operation in (publish_one, acknowledge)  # which need no call


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.slow
async def test_the_new_owner_stands_still_while_it_loads(
    operation: Operation, late: bool, autojump_clock: MockClock
) -> None:
    """It is stopped at each call, the old owner goes on, it ends its loading and serves."""
    at, halted = 0, True
    while halted:
        world = TwoBrokers()
        async with world.broker(first=True) as old, world.broker() as new:
            await world.begin(old)
            async with trio.open_nursery() as nursery:
                new.store.halt(at, late=late)
                nursery.start_soon(new.open)
                await wait_all_tasks_blocked()
                halted = new.store.halted.is_set()
                await _try(operation, old)
                new.store.go.set()
            await new.open()
            await _serve(operation, old, new, "a")
            await _try(operation, old)
            await _serve(operation, old, new, "b")
        await world.check()
        at += 1
    assert at > 1


async def _serve(operation: Operation, old: Broker, new: Broker, prefix: str) -> None:
    """The new owner must, unless the old one loaded the log again: then one of them."""
    if operation is not load:
        await new.serve(prefix)
        return
    served = 0
    for broker in (new, old):
        with suppress(LogError):
            await broker.serve(prefix + broker.name)
            served += 1
    assert served


async def _try(operation: Operation, broker: Broker) -> None:
    with suppress(LogError, KeyError):
        await operation(broker)
