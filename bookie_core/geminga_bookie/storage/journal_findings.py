"""What a reading of one journal file found beside its items, and the verdict on it (spec BK-02).

Three things prove that a place was on disk, and so acknowledged: a later record of the same file
(a record is begun when all before it are durable), an end mark, and the end that the next file
names. What stands behind the last proof is judged by its pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from geminga_bookie.storage.journal_format import JournalPosition


class Doubt(NamedTuple):
    """A place behind the last proof that isn't a whole record."""

    offset: int
    end: int
    text: str
    damaged: bool
    """It was written whole and changed later; else a crash may have left it so."""


@dataclass(slots=True)
class FileFindings:
    """One file's."""

    journal_id: int
    path: Path
    records: int = 0
    """Whole ones."""
    proven_end: int = 0
    """Everything in front of it was acknowledged."""
    predecessor: JournalPosition | None = None
    """The file that was written before, and its end, as the first record says."""
    notes: list[str] = field(default_factory=list)
    """Damage that loses nothing."""
    damages: list[str] = field(default_factory=list)
    """What was acknowledged and can't be read."""
    doubts: list[Doubt] = field(default_factory=list)

    def prove(self, end: int) -> None:
        """Everything in front of `end` was acknowledged: what was doubtful there is damage."""
        self.proven_end = max(self.proven_end, end)
        self.damages += [doubt.text for doubt in self.doubts if doubt.offset < end]
        self.doubts = [doubt for doubt in self.doubts if doubt.offset >= end]

    def judge(self, named_end: int | None) -> list[str]:
        """Settle the doubts; returns the unfinished records. `named_end` is the end that a later
        file names, None if there is no such file."""
        if named_end is not None:
            read_to = max([self.proven_end, *(doubt.end for doubt in self.doubts)])
            self.prove(named_end)
            # Behind the named end nothing was acknowledged.
            self.doubts = []
            if read_to < named_end:
                self.damages.append(
                    f"{self.path}: {named_end - read_to} bytes at {read_to} are missing, "
                    "the next journal says that they were written"
                )
            return []
        self.damages += [doubt.text for doubt in self.doubts if doubt.damaged]
        torn = [doubt.text for doubt in self.doubts if not doubt.damaged]
        ends = [doubt.end for doubt in self.doubts if doubt.damaged]
        self.proven_end = max([self.proven_end, *ends])
        self.doubts = []
        return torn
