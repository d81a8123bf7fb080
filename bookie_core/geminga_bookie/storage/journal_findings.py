"""Findings of a journal file's scan beside its items, and the verdict on them (spec BK-02).

Three things prove that a place was on disk, and so acknowledged: a later record of the same file (a
record is begun after all before it are durable), an end mark, and the end named by the next file.
Content after the last proof is judged by its pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from geminga_bookie.storage.journal_format import JournalPosition


class Doubt(NamedTuple):
    """A place after the last proof that isn't a whole record."""

    offset: int
    end: int
    text: str
    damaged: bool
    """Whether it was written whole and changed later; else a crash may have left it so."""


@dataclass(slots=True)
class FileFindings:
    """The findings of one file."""

    journal_id: int
    path: Path
    version: int = 0
    """Of the file; 0 until its header was read."""
    records: int = 0
    """Number of whole records."""
    record_at: int = -1
    """Offset of the record that was read last."""
    proven_end: int = 0
    """All before it was acknowledged."""
    predecessor: JournalPosition | None = None
    """The preceding file and its end, named by the first record."""
    notes: list[str] = field(default_factory=list)
    """Damage without loss."""
    damages: list[str] = field(default_factory=list)
    """Acknowledged content that can't be read."""
    doubts: list[Doubt] = field(default_factory=list)

    def prove(self, end: int) -> None:
        """All before `end` was acknowledged: doubts there are damage."""
        self.proven_end = max(self.proven_end, end)
        self.damages += [doubt.text for doubt in self.doubts if doubt.offset < end]
        self.doubts = [doubt for doubt in self.doubts if doubt.offset >= end]

    def judge(self, named_end: int | None) -> list[str]:
        """Settle the doubts; returns the unfinished records. `named_end` is the end that a later
        file names, None if there is no such file."""
        if named_end is not None:
            read_to = max([self.proven_end, *(doubt.end for doubt in self.doubts)])
            self.prove(named_end)
            # Nothing was acknowledged after the named end.
            self.doubts = []
            if read_to < named_end:
                self.damages.append(
                    f"{self.path}: {named_end - read_to} bytes at {read_to} are missing, "
                    "although the next journal has them as written"
                )
            return []
        self.damages += [doubt.text for doubt in self.doubts if doubt.damaged]
        torn = [doubt.text for doubt in self.doubts if not doubt.damaged]
        ends = [doubt.end for doubt in self.doubts if doubt.damaged]
        self.proven_end = max([self.proven_end, *ends])
        self.doubts = []
        return torn
