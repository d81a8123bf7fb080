"""What a process holds, as text: memory, objects, long containers, bytes that wait for peers
(spec OP-09).
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from heapq import nlargest
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

import trio

from geminga_runtime.stream import FramedStream

if TYPE_CHECKING:
    from collections.abc import Sized

TURN_OBJECTS = 5_000
"""Objects that are looked at in one turn of the loop: some milliseconds."""
SHOWN = 20
LONG = 1_000
"""Containers of fewer elements are not worth a line."""

_CONTAINERS = (dict, list, set, frozenset, deque, tuple)


INSTANCES_MAX = 100_000
"""Of our instances that are kept in sight when they are frozen, so many are looked at."""

_kept: list[weakref.ref[object]] = []


class _Known(dict[type, bool]):
    """Whether a type is ours and its instances can be kept in sight; looked at once for each type,
    as a start has some hundred thousand objects.
    """

    def __missing__(self, kind: type) -> bool:
        found = self[kind] = _is_ours(kind) and _has_weak(kind)
        return found


def keep_in_sight() -> None:
    """Call before `gc.freeze`, which hides objects from `gc.get_objects`: our instances, which have
    all registries of a server, stay in sight of `format_heap`. They are not kept alive.
    """
    known = _Known()
    ours = (each for each in gc.get_objects() if known[type(each)])
    _kept[:] = [weakref.ref(each) for each in islice(ours, INSTANCES_MAX)]


async def format_heap() -> str:
    """Takes about a second for a million objects, in turns of some milliseconds. What was there
    when the start was over is not counted (`gc.freeze`), nor what has no references, as bytes; but
    the long containers of our instances are told of, whenever they were made.
    """
    scan = _Scan()
    frozen = _frozen()
    while part := [*islice(frozen, TURN_OBJECTS)]:
        scan.look(part)
        part.clear()
        await trio.lowlevel.checkpoint()
    objects = gc.get_objects()
    total = len(objects)
    while objects:
        part = objects[-TURN_OBJECTS:]
        del objects[-TURN_OBJECTS:]
        scan.count(part)
        scan.look(part)
        part.clear()
        await trio.lowlevel.checkpoint()
    return "\n".join(
        (
            *_process(),
            f"objects={total} collections={[each['collections'] for each in gc.get_stats()]}",
            *scan.lines(),
        )
    )


class _Scan:
    """What is found so far. Objects are asked for their type only: to ask some of them for more,
    as proxies of what is gone, raises errors.
    """

    def __init__(self) -> None:
        self._types: Counter[type] = Counter()
        self._sizes: Counter[type] = Counter()
        self._long: dict[int, tuple[int, str]] = {}
        """By id, as several instances may have one container."""
        self._streams: list[tuple[int, str]] = []

    def count(self, objects: Iterable[object]) -> None:
        for each in objects:
            kind = type(each)
            self._types[kind] += 1
            self._sizes[kind] += sys.getsizeof(each, 0)

    def look(self, objects: Iterable[object]) -> None:
        for each in objects:
            kind = type(each)
            if not _is_ours(kind):
                continue
            if issubclass(kind, FramedStream):
                stream = cast("FramedStream", each)
                self._streams.append((stream.pending_bytes, stream.name))
            for held in _held(each):
                of = type(held)
                if issubclass(of, _CONTAINERS) and (size := len(cast("Sized", held))) >= LONG:
                    self._long[id(held)] = (size, f"{of.__name__} of {_name(kind)}")
        longest = nlargest(SHOWN, self._long.items(), key=lambda found: found[1])
        self._long = dict(longest)
        self._streams = nlargest(SHOWN, self._streams)

    def lines(self) -> Iterator[str]:
        for kind, count in self._types.most_common(SHOWN):
            yield f"  {count} {_name(kind)} ({self._sizes[kind]} bytes)"
        yield f"containers of {LONG} elements and more, the longest {SHOWN}:"
        yield from (f"  {size} in {owner}" for size, owner in self._long.values())
        yield f"connections with waiting bytes, the most {SHOWN}:"
        yield from (f"  {size} to {name}" for size, name in self._streams if size)


def _frozen() -> Iterator[object]:
    """The instances that are kept in sight, and those in their attributes that can't be, as they
    have no weak references.
    """
    seen: set[int] = set()
    for reference in _kept:
        waiting = [reference()]
        while waiting:
            each = waiting.pop()
            if each is None:
                continue
            yield each
            for held in _held(each):
                kind = type(held)
                if _is_ours(kind) and not _has_weak(kind) and id(held) not in seen:
                    if len(seen) >= INSTANCES_MAX:
                        return
                    seen.add(id(held))
                    waiting.append(held)


def _held(instance: object) -> Iterator[object]:
    """What an instance's attributes hold, and those of its dicts that are short: its own dict is
    one of them, if it has one.
    """
    for held in gc.get_referents(instance):
        yield held
        if issubclass(type(held), dict):
            inner = cast("dict[object, object]", held)
            if len(inner) < LONG:
                # At once: other threads may change it meanwhile.
                yield from [*dict.values(inner)]


def _is_ours(kind: type) -> bool:
    return str(kind.__module__).startswith("geminga")


def _has_weak(kind: type) -> bool:
    return bool(kind.__weakrefoffset__)


def _process() -> Iterator[str]:
    """Memory from the kernel, where it tells."""
    try:
        status = Path("/proc/self/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        resident, peak = (" ".join(fields[name].split()) for name in ("VmRSS", "VmHWM"))
        descriptors = len(os.listdir("/proc/self/fd"))
        yield f"memory={resident} peak={peak} descriptors={descriptors}"
    except (OSError, KeyError, ValueError):
        yield "memory: not told by this system"
    tasks = trio.lowlevel.current_statistics()
    yield (
        f"threads={threading.active_count()} tasks={tasks.tasks_living} "
        f"runnable={tasks.tasks_runnable} "
        f"waiting_calls={tasks.run_sync_soon_queue_size}"
    )


def _name(kind: type) -> str:
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return module + kind.__qualname__
