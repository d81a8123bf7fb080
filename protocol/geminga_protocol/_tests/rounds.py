"""Long tests take half of their rounds in `make test`, and all of them in `make nightly`."""

from __future__ import annotations

import os

IS_NIGHTLY = os.environ.get("GEMINGA_NIGHTLY", "") not in ("", "0")


def rounds(count: int) -> int:
    """The rounds, seeds or kills of `count` that this run takes."""
    return count if IS_NIGHTLY else (count + 1) // 2
