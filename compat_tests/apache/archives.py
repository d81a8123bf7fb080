"""Archives of the classes that Java programs load (class-data sharing): they start with half the
processor time, and a run of all tests starts a hundred of them.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from compat_tests.apache.locks import locked

KEPT_MAX = 2
"""Archives for other states of the programs or of Java that stay: other checkouts use them."""


def archive_path(folder: Path, kind: str, *parts: object) -> Path:
    """Where the archive of a kind is, if it has been made. It holds for this Java and for these
    parts alone; a JVM starts without one that doesn't fit or isn't there.
    """
    java = Path(shutil.which("java") or "java").resolve()
    java_ns = java.stat().st_mtime_ns if java.exists() else 0
    told = " ".join(map(str, (java, java_ns, *parts)))
    return folder / f"{kind}-{hashlib.sha256(told.encode()).hexdigest()[:16]}.jsa"


def shared(archive: Path) -> list[str]:
    """Flags of a JVM that uses it."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"]


def recorded(archive: Path) -> list[str]:
    """Flags of a JVM that makes it when it ends."""
    return [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds*=off"]


def make(archive: Path, train: Callable[[Path], str]) -> None:
    """Once. The function trains a JVM, which has to leave the archive at the path that it is given;
    it returns why it could not. That is told, and not tried again: the tests run without it, too.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    kind = archive.stem.rpartition("-")[0]
    with locked(archive.parent / f".{kind}.lock"):
        failed = archive.with_suffix(".failed")
        if archive.exists() or failed.exists():
            return
        others = sorted(archive.parent.glob(f"{kind}-*.jsa"), key=lambda each: each.stat().st_mtime)
        for old in others[:-KEPT_MAX]:
            old.unlink()
        fresh = archive.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        told = train(fresh)
        if not told and fresh.exists():
            fresh.rename(archive)
            return
        failed.write_text(told)
    print(f"Java's classes can't be archived ({failed}): {told[-2000:]}", file=sys.stderr)
