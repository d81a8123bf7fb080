"""Producers or consumers of a connection, by the client's ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from geminga_broker.authz.needs import Place

T = TypeVar("T")

CLOSED_IDS_MAX = 10_000
"""Known closed ids of one connection; the oldest are forgotten first."""


class Opening:
    """An id whose producer or consumer is being opened."""

    __slots__ = ("_dropped", "_recheck_required", "place")

    def __init__(self) -> None:
        self._dropped = False
        self._recheck_required = True
        self.place: Place | None = None
        """The place for which the client's right was checked."""

    def drop(self) -> None:
        """The client has closed it before it was open."""
        self._dropped = True

    def is_dropped(self) -> bool:
        """Whether the client has closed it before it was open."""
        return self._dropped

    def require_recheck(self, *, required: bool = True) -> None:
        """Set whether the client's right must be checked (again) before it is open."""
        self._recheck_required = required

    def requires_recheck(self) -> bool:
        """Whether the client's right must be checked (again)."""
        return self._recheck_required


class Registry(Generic[T]):
    """Open producers or consumers, those being opened, and the ids of closed ones."""

    __slots__ = ("_closed", "_opening", "_places", "opened")

    def __init__(self) -> None:
        self.opened: dict[int, T] = {}
        self._places: dict[int, Place] = {}
        self._opening: dict[int, Opening] = {}
        self._closed: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self.opened) + len(self._opening)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self.opened.values()))

    def get(self, key: int) -> T | None:
        """The open producer or consumer with that id."""
        return self.opened.get(key)

    def begin(self, key: int) -> Opening | None:
        """Reserve an id; None if it is taken."""
        if key in self.opened or key in self._opening:
            return None
        opening = self._opening[key] = Opening()
        return opening

    def finish(self, key: int, opening: Opening, value: T) -> bool:
        """Mark the id as open. Returns False if the client has closed it meanwhile. The client's
        right must have been checked before.
        """
        if opening.is_dropped():
            return False
        place = opening.place
        assert place is not None, "the client's right was not checked"
        del self._opening[key]
        self._closed.pop(key, None)
        self.opened[key] = value
        self._places[key] = place
        return True

    def places(self, concerned: Callable[[Place], bool]) -> list[tuple[int, Place]]:
        """Ids and places of those open in places that `concerned` selects."""
        return [(key, place) for key, place in self._places.items() if concerned(place)]

    def require_recheck(self) -> None:
        """Grants were revoked: check the client's right again for all being opened."""
        for opening in self._opening.values():
            opening.require_recheck()

    def fail(self, key: int, opening: Opening) -> None:
        """Opening failed; no effect if it was finished or dropped."""
        if self._opening.get(key) is opening:
            del self._opening[key]

    def drop_opening(self, key: int) -> bool:
        """Drop one being opened; False if there is none."""
        opening = self._opening.pop(key, None)
        if opening is None:
            return False
        opening.drop()
        return True

    def forget(self, key: int) -> T | None:
        """Remove an id; returns the open producer or consumer."""
        value = self.opened.pop(key, None)
        self._places.pop(key, None)
        if value is not None:
            if len(self._closed) >= CLOSED_IDS_MAX:
                del self._closed[next(iter(self._closed))]
            self._closed[key] = None
        return value

    def was_closed(self, key: int) -> bool:
        """Whether the id was open, or is being opened: its frames may still arrive."""
        return key in self._closed or key in self._opening
