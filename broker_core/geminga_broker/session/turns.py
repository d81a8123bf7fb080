"""Long commands run in steps, one in a turn of the loop, so that other tasks run (spec PR-16)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from geminga_broker.session.session import Session
from geminga_protocol.pb.pulsar_api_pb2 import MessageIdData

STEP_IDS = 1000
"""Message ids in a step, about 10 ms; Java clients send no more in a command."""

LONG_WORDS = 128
"""Ack sets count from this number of words on; usual batches have a few words."""

_WORDS_PER_ID = 64
"""Words that take as long as a message id."""


STARTS_PER_TURN = 32
"""Commands of one connection that start in a turn, a few ms: a read may bring thousands of short
ones, and those that start together also continue together.
"""


class LongWork(Exception):
    """Raised by a handler of a long command: `steps` do the work; later frames wait for them."""

    def __init__(self, steps: Iterator[None]) -> None:
        super().__init__("in turns")
        self.steps = steps


async def run_in_turns(session: Session, steps: Iterator[None]) -> None:
    """Run all steps; only one step, of all connections, runs in a turn of the loop."""
    turn = session.service.connections.turn
    session.liveness.pause()
    more = True
    while more:
        async with turn:
            more = next(steps, _END) is not _END
    session.liveness.resume()


_END = object()


def count_start(session: Session) -> None:
    """Count a command that starts a task. Raises LongWork if the next one must wait for another
    turn.
    """
    session.started += 1
    if session.started >= STARTS_PER_TURN:
        session.started = 0
        raise LongWork(iter(()))


def parts_of(ids: Iterable[MessageIdData]) -> Iterator[list[MessageIdData]]:
    """The ids in parts, each for one step."""
    part: list[MessageIdData] = []
    weight = 0
    for data in ids:
        part.append(data)
        weight += 1 + len(data.ack_set) // _WORDS_PER_ID
        if weight >= STEP_IDS:
            yield part
            part, weight = [], 0
    if part:
        yield part
