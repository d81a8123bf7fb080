"""Long commands run in steps, one in a turn of the loop, so that others go on (spec PR-16)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from geminga_broker.session.session import Session
from geminga_protocol.pb.pulsar_api_pb2 import MessageIdData

STEP_IDS = 1000
"""Message ids in a step, about 10 ms; Java's clients put no more into a command."""

LONG_WORDS = 128
"""Words of an ack set from which on it counts: those of usual batches are a few."""

_WORDS_PER_ID = 64
"""They take as long as a message id."""


STARTS_PER_TURN = 64
"""Commands of one connection that begin in a turn, a few ms: a read brings thousands of short ones,
and what is begun together goes on together.
"""


class LongWork(Exception):
    """Raised by a handler whose command takes long: `steps` do it, and later frames wait until they
    are done.
    """

    def __init__(self, steps: Iterator[None]) -> None:
        super().__init__("in turns")
        self.steps = steps


async def run_in_turns(session: Session, steps: Iterator[None]) -> None:
    """Do all steps, one in a turn of the loop, also if many connections have some to do."""
    turn = session.service.connections.turn
    session.liveness.pause()
    more = True
    while more:
        async with turn:
            more = next(steps, _END) is not _END
    session.liveness.resume()


_END = object()


def count_start(session: Session) -> None:
    """A command was begun that goes on in a task. Raises LongWork when the next has to wait for
    another turn.
    """
    session.started += 1
    if session.started >= STARTS_PER_TURN:
        session.started = 0
        raise LongWork(iter(()))


def parts_of(ids: Iterable[MessageIdData]) -> Iterator[list[MessageIdData]]:
    """The ids, so many at a time as a step may have."""
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
