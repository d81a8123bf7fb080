"""Where our server's time goes while it publishes and while it dispatches (py-spy)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from compat_tests.bench.side import Side

_SAMPLES_PER_S = 200
_FUNCTIONS_SHOWN = 22


@dataclass(frozen=True)
class Profile:
    """Shares of the samples (0 to 1) by function: in itself, and with what it called."""

    title: str
    samples: int
    own: dict[str, float]
    within: dict[str, float]


def profiles(side: Side) -> list[Profile]:
    """A profile of the publish path and one of the dispatch path."""
    program = Path(sys.executable).with_name("py-spy")
    if not program.exists() and shutil.which("py-spy") is None:
        print("py-spy is not installed: no profiles", file=sys.stderr)
        return []
    side.start("profile")
    try:
        topic = side.topic()
        count = int(side.seconds(1 << 19, 1 << 17))
        seconds = side.seconds(10, 3)

        def publish() -> None:
            side.java("produce", topic=side.topic(), batching=0, warmup_s=3, duration_s=seconds + 3)

        def write_backlog() -> None:
            side.java("produce", topic=topic, count=count, keep=1, batching=0, warmup_s=0)

        def read_backlog() -> None:
            side.java("consume", topic=topic, count=count, type="Shared", receiver_queue=5000)

        published = _record(side, "Publish: unbatched 1 KiB", publish, 3, seconds)
        write_backlog()
        dispatched = _record(side, "Dispatch: single entries, Shared", read_backlog, 1, seconds)
        return [published, dispatched]
    finally:
        side.stop()
        side.forget("profile")


def _record(
    side: Side, title: str, load: Callable[[], None], after_s: float, seconds: float
) -> Profile:
    """Sample the server for so long, beginning so long after the load."""
    program = Path(sys.executable).with_name("py-spy")
    output = side.work_dir / "stacks.txt"
    output.unlink(missing_ok=True)
    worker = threading.Thread(target=load)
    worker.start()
    worker.join(after_s)
    command = [str(program), "record", "--pid", str(side.server.pid), "--format", "raw"]
    # Only the thread that holds the interpreter: the others wait, or work in C beside it.
    command += ["--gil", "--rate", str(_SAMPLES_PER_S), "--duration", str(max(1, round(seconds)))]
    subprocess.run([*command, "--output", str(output)], check=True, capture_output=True)
    worker.join()
    return summarise(title, output.read_text() if output.exists() else "")


def summarise(title: str, stacks: str) -> Profile:
    """Count py-spy's folded stacks (``a;b;c 12``, outermost first) by function."""
    own: Counter[str] = Counter()
    within: Counter[str] = Counter()
    total = 0
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [_name(frame) for frame in stack.split(";")]
        total += int(count)
        own[frames[-1]] += int(count)
        for name in set(frames):
            within[name] += int(count)
    shares = [
        {name: count / total for name, count in counter.most_common(_FUNCTIONS_SHOWN)}
        for counter in (own, within)
    ]
    return Profile(title, total, *shares)


def _name(frame: str) -> str:
    """``feed (geminga_protocol/frames.py:120)`` as ``feed frames.py``: lines are too fine."""
    function, _, place = frame.partition(" (")
    return f"{function} {place.rpartition('/')[2].partition(':')[0].rstrip(')')}".strip()
