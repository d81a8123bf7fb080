"""What was written, confirmed, read and closed, and what must hold of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_bookie.errors import BookkeeperError

from ..chance import EventLog


@dataclass(slots=True)
class LedgerBook:
    """One ledger."""

    ledger_id: int
    sizes: tuple[int, int, int]
    contents: list[bytes] = field(default_factory=list)
    """Of the entries that were appended, confirmed or not."""
    confirmed: int = 0
    """Entries that the writer was told are stored."""
    error: BookkeeperError | None = None
    end: tuple[int, int] | None = None
    """Last entry and length, once anybody has seen the ledger closed."""
    seen: int = -1
    """Highest last add confirmed that a reader was told."""
    is_deleted: bool = False
    """Its deletion was asked for."""

    @property
    def text(self) -> str:
        return f"ledger {self.ledger_id} {self.sizes}"


class Books:
    """Kept by the actors, read by the checks."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.ledgers: dict[int, LedgerBook] = {}
        self.violations: list[str] = []

    def violate(self, text: str) -> None:
        """Something that must hold doesn't."""
        self.log.add(f"VIOLATION {text}")
        self.violations.append(text)

    def created(self, ledger_id: int, sizes: tuple[int, int, int]) -> LedgerBook:
        """A ledger that a writer was given."""
        if ledger_id in self.ledgers:
            self.violate(f"two ledgers have the id {ledger_id}")
        book = self.ledgers[ledger_id] = LedgerBook(ledger_id, sizes)
        self.log.add(f"{book.text} created")
        return book

    def answered(
        self, book: LedgerBook, first: int, count: int, error: BookkeeperError | None
    ) -> None:
        """The writer was told of a run."""
        if error is not None:
            book.error = book.error or error
            self.log.add(f"{book.text} failed {first}+{count}: {type(error).__name__}")
            return
        self.log.add(f"{book.text} confirmed {first}+{count}")
        if book.error is not None:
            self.violate(f"{book.text}: {first}+{count} confirmed after an error")
        if first != book.confirmed:
            self.violate(f"{book.text}: {first} confirmed after {book.confirmed - 1}")
        book.confirmed = max(book.confirmed, first + count)
        if book.end is not None and book.confirmed - 1 > book.end[0]:
            self.violate(
                f"{book.text}: {book.confirmed - 1} confirmed, but it was closed at {book.end[0]}"
            )

    def closed(self, book: LedgerBook, last: int, length: int, who: str) -> None:
        """Somebody has seen the ledger closed."""
        self.log.add(f"{book.text} closed at {last} {length} for {who}")
        if book.end is None:
            book.end = last, length
            if last < book.confirmed - 1:
                self.violate(f"{book.text}: ends at {last}, confirmed was {book.confirmed - 1}")
            if last < book.seen:
                self.violate(f"{book.text}: ends at {last}, a reader was told of {book.seen}")
            if last >= len(book.contents):
                self.violate(f"{book.text}: ends at {last}, appended were {len(book.contents)}")
            elif length != sum(map(len, book.contents[: last + 1])):
                self.violate(f"{book.text}: ends at {last} with a wrong length")
        elif book.end != (last, length):
            self.violate(f"{book.text}: {who} found {last, length}, others {book.end}")

    def lac(self, book: LedgerBook, last: int, who: str) -> None:
        """A reader of an open ledger was told of its last add confirmed."""
        self.log.add(f"{book.text} LAC {last} for {who}")
        if last > book.confirmed - 1 and (book.end is None or last > book.end[0]):
            self.violate(f"{book.text}: {who} told of {last}, confirmed {book.confirmed - 1}")
        book.seen = max(book.seen, last)
        if book.end is not None and last > book.end[0]:
            self.violate(f"{book.text}: {who} told of {last}, it ends at {book.end[0]}")

    def read(self, book: LedgerBook, first: int, found: list[bytes], who: str) -> None:
        """What a reader got."""
        self.log.add(f"{book.text} {first}+{len(found)} read by {who}")
        if found != book.contents[first : first + len(found)]:
            self.violate(f"{book.text}: {who} read other contents from {first} on")
