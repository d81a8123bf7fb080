"""What a process holds, as text: memory, objects, long containers, bytes that wait for peers
(spec OP-09).
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from heapq import nlargest
from pathlib import Path

import trio

from geminga_runtime.stream import FramedStream

TURN_OBJECTS = 5_000
"""Objects that are looked at in one turn of the loop: some milliseconds."""
SHOWN = 20
LONG = 1_000
"""Containers of fewer elements are not worth a line."""

_CONTAINERS = (dict, list, set, frozenset, deque, tuple)


async def format_heap() -> str:
    """Takes about a second for a million objects, in turns of some milliseconds. What was there
    when the start was over is not counted (`gc.freeze`), nor what has no references, as bytes.
    """
    types: Counter[type] = Counter()
    sizes: Counter[type] = Counter()
    long: list[tuple[int, str]] = []
    streams: list[tuple[int, str]] = []
    objects = gc.get_objects()
    total = len(objects)
    each: object = None
    while objects:
        part = objects[-TURN_OBJECTS:]
        del objects[-TURN_OBJECTS:]
        for each in part:
            kind = type(each)
            types[kind] += 1
            sizes[kind] += sys.getsizeof(each, 0)
            if isinstance(each, FramedStream):
                streams.append((each.pending_bytes, each.name))
        long = nlargest(SHOWN, [*long, *_long(part)])
        streams = [*nlargest(SHOWN, streams)]
        part, each = [], None
        await trio.lowlevel.checkpoint()
    return "\n".join(
        (
            *_process(),
            f"objects={total} collections={[each['collections'] for each in gc.get_stats()]}",
            *(f"  {count} {_name(kind)} ({sizes[kind]} bytes)" for kind, count in _most(types)),
            f"containers of {LONG} elements and more, the longest {SHOWN}:",
            *(f"  {size} in {owner}" for size, owner in long),
            f"connections with waiting bytes, the most {SHOWN}:",
            *(f"  {size} to {name}" for size, name in streams if size),
        )
    )


def _most(types: Counter[type]) -> list[tuple[type, int]]:
    return types.most_common(SHOWN)


def _long(objects: Iterable[object]) -> Iterator[tuple[int, str]]:
    """Long containers that instances of our classes have, or their attributes."""
    for each in objects:
        kind = type(each)
        if str(kind.__module__).startswith("geminga"):
            for held in _held(each):
                if isinstance(held, _CONTAINERS) and len(held) >= LONG:
                    yield len(held), f"{type(held).__name__} of {_name(kind)}"


def _held(instance: object) -> Iterator[object]:
    """What an instance's attributes hold, and those of its dicts that are short: its own dict is
    one of them, if it has one.
    """
    for held in gc.get_referents(instance):
        yield held
        if isinstance(held, dict) and len(held) < LONG:
            yield from held.values()


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
