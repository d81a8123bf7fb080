"""Paths and values of BookKeeper's auto-recovery in the metadata store (pure; spec BK-26, BK-27;
Apache's ZkLedgerUnderreplicationManager, ZkLedgerAuditorManager of 4.17).

/ledgers/underreplication/LAYOUT                                     type and version
                          ledgers/0000/0000/0000/00ab/urL0000000171  a task
                          locks/urL0000000171                        ephemeral: a worker has it
                          auditorelection/V_0000000003               ephemeral: a candidate
                          disable                                    while it exists, all rests
                          lostBookieRecoveryDelay                    seconds, as text
                          checkallledgersctime, ...                  when a check ended
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from geminga_protocol.bookkeeper.paths import ROOT as LEDGERS
from geminga_protocol.pb.bookkeeper_metadata_pb2 import (
    AuditorVoteFormat,
    CheckAllLedgersFormat,
    LedgerRereplicationLayoutFormat,
    LockDataFormat,
    PlacementPolicyCheckFormat,
    ReplicasCheckFormat,
    UnderreplicatedLedgerFormat,
)

ROOT = f"{LEDGERS}/underreplication"
LAYOUT = f"{ROOT}/LAYOUT"
TASKS = f"{ROOT}/ledgers"
LOCKS = f"{ROOT}/locks"
DISABLE = f"{ROOT}/disable"
LOST_BOOKIE_RECOVERY_DELAY = f"{ROOT}/lostBookieRecoveryDelay"
ELECTION = f"{ROOT}/auditorelection"
VOTE = f"{ELECTION}/V_"
"""Prefix of the sequential nodes of the candidates."""
CHECK_ALL_LEDGERS_TIME = f"{ROOT}/checkallledgersctime"
PLACEMENT_CHECK_TIME = f"{ROOT}/placementpolicycheckctime"
REPLICAS_CHECK_TIME = f"{ROOT}/replicascheckctime"

LAYOUT_TYPE = "BASIC"
LAYOUT_VERSION = 1

_TASK = re.compile(r"urL(\d{10,19})", re.ASCII)
_TIMES: dict[str, type[Message]] = {
    CHECK_ALL_LEDGERS_TIME: CheckAllLedgersFormat,
    PLACEMENT_CHECK_TIME: PlacementPolicyCheckFormat,
    REPLICAS_CHECK_TIME: ReplicasCheckFormat,
}

M = TypeVar("M", bound=Message)


class Underreplicated(NamedTuple):
    """A task: bookies that lack entries of a ledger."""

    replicas: tuple[str, ...]
    ctime_ms: int | None
    """When the ledger was marked last."""


def task(ledger_id: int) -> str:
    """Path of the task of a ledger."""
    digits = f"{ledger_id:016x}"
    parts = "/".join(digits[at : at + 4] for at in range(0, 16, 4))
    return f"{TASKS}/{parts}/{_name(ledger_id)}"


def lock(ledger_id: int) -> str:
    """Path of the lock of a ledger."""
    return f"{LOCKS}/{_name(ledger_id)}"


def _name(ledger_id: int) -> str:
    return f"urL{ledger_id:010}"


def ledger_id(name: str) -> int | None:
    """The ledger of a task's or lock's name; None for the name of another node."""
    found = _TASK.fullmatch(name)
    return int(found[1]) if found else None


def encode_task(wanted: Underreplicated) -> bytes:
    """The value of a task."""
    return _text(UnderreplicatedLedgerFormat(replica=wanted.replicas, ctime=wanted.ctime_ms))


def decode_task(value: bytes) -> Underreplicated:
    """Raises ValueError."""
    found = _parse(UnderreplicatedLedgerFormat(), value)
    ctime = found.ctime if found.HasField("ctime") else None
    return Underreplicated(tuple(found.replica), ctime)


def add_replicas(known: Underreplicated, more: Iterable[str], now_ms: int) -> Underreplicated:
    """The task with more bookies; the same object if it names them all."""
    added = tuple(each for each in dict.fromkeys(more) if each not in known.replicas)
    return Underreplicated(known.replicas + added, now_ms) if added else known


def layout() -> bytes:
    """The value of the node LAYOUT."""
    return _text(LedgerRereplicationLayoutFormat(type=LAYOUT_TYPE, version=LAYOUT_VERSION))


def check_layout(value: bytes) -> None:
    """Raises ValueError for a tree of another layout."""
    found = _parse(LedgerRereplicationLayoutFormat(), value)
    if (found.type, found.version) != (LAYOUT_TYPE, LAYOUT_VERSION):
        raise ValueError(
            f"{LAYOUT} names {found.type!r}, version {found.version}; "
            f"only {LAYOUT_TYPE!r}, version {LAYOUT_VERSION}, is known"
        )


def encode_lock(owner: str) -> bytes:
    """The value of a lock: Apache's workers write their host name."""
    return _text(LockDataFormat(bookieId=owner))


def decode_lock(value: bytes) -> str:
    """The owner of a lock. Raises ValueError."""
    return _parse(LockDataFormat(), value).bookieId


def encode_vote(bookie_id: str) -> bytes:
    """The value of a vote, and of the election's own node once there is an auditor."""
    return _text(AuditorVoteFormat(bookieId=bookie_id))


def decode_vote(value: bytes) -> str:
    """The candidate of a vote. Raises ValueError."""
    return _parse(AuditorVoteFormat(), value).bookieId


def in_order(votes: Iterable[str]) -> list[str]:
    """Names of votes by their numbers: the first one is the auditor's."""
    numbered = [(int(name[2:]), name) for name in votes if name[:2] == "V_" and name[2:].isdigit()]
    return [name for _, name in sorted(numbered)]


def encode_time(path: str, at_ms: int) -> bytes:
    """The value of the node of a check that ended then; binary, unlike the others."""
    kind = _TIMES[path]
    [field] = kind.DESCRIPTOR.fields
    return kind(**{field.name: at_ms}).SerializeToString()


def decode_time(path: str, value: bytes) -> int | None:
    """When the check ended; None if the value doesn't say so. Raises ValueError."""
    kind = _TIMES[path]
    [field] = kind.DESCRIPTOR.fields
    try:
        found = kind.FromString(value)
    except DecodeError as error:
        raise ValueError(str(error)) from None
    at_ms: int = getattr(found, field.name)
    return at_ms if found.HasField(field.name) else None


def _text(message: Message) -> bytes:
    return text_format.MessageToString(message).encode()


def _parse(message: M, value: bytes) -> M:
    try:
        text_format.Merge(value.decode(), message)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"not a {message.DESCRIPTOR.name}: {error}") from None
    if not message.IsInitialized():
        raise ValueError(f"not a {message.DESCRIPTOR.name}: required fields are missing")
    return message
