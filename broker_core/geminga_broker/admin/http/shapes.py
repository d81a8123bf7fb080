"""Finds a request's route among hundreds: those are tried whose fixed parts are the path's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import Receive, Scope, Send

SHAPES_MAX = 4096
"""Kinds of paths whose routes are remembered; more only if somebody looks for them."""


class ShapedRouter(Router):
    """As Starlette's router, which tries one route after the other. Parameters of its routes stand
    for one part of a path each.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        super().__init__(routes, redirect_slashes=False)
        self._split = [(route, route.path.split("/")) for route in routes]
        self._words = _words_of(parts for _, parts in self._split)
        self._known: dict[tuple[str, ...], Router] = {}

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request to its route."""
        if scope["type"] != "http":
            await super().app(scope, receive, send)
            return
        scope.setdefault("router", self)
        await self.of(scope["path"]).app(scope, receive, send)

    def taken_by(self, scope: Scope) -> Route | None:
        """The route that takes a request, which the scope tells from then on; None if none does."""
        for route in self.of(scope["path"]).routes:
            match, told = route.matches(scope)
            if match is Match.FULL and isinstance(route, Route):
                scope["route"] = route
                scope.update(told)
                return route
        return None

    def of(self, path: str) -> Router:
        """The routes that may match a path, in their order."""
        parts = path.split("/")
        words = self._words.get(len(parts))
        if words is None:
            shape: tuple[str, ...] = ()
        else:
            shape = tuple(
                [part if part in known else "" for part, known in zip(parts, words, strict=True)]
            )
        found = self._known.get(shape)
        if found is None:
            if len(self._known) >= SHAPES_MAX:
                self._known.clear()
            found = self._known[shape] = Router(self._fitting(shape), redirect_slashes=False)
        return found

    def _fitting(self, shape: tuple[str, ...]) -> list[BaseRoute]:
        return [
            route
            for route, parts in self._split
            if len(parts) == len(shape) and may_fit(parts, shape)
        ]


def is_open(part: str) -> bool:
    """Whether a part of a route's path is not fixed."""
    return "{" in part


def may_fit(parts: Sequence[str], path: Sequence[str]) -> bool:
    """Whether a path of as many parts as a route's has its fixed ones: what a look tells, where a
    pattern reads all of a long path.
    """
    return all(is_open(part) or part == word for part, word in zip(parts, path, strict=True))


def _words_of(paths: Iterable[list[str]]) -> dict[int, list[set[str]]]:
    """By the number of a path's parts: the fixed words at each place."""
    found: dict[int, list[set[str]]] = {}
    for parts in paths:
        places = found.setdefault(len(parts), [set() for _ in parts])
        for part, place in zip(parts, places, strict=True):
            if not is_open(part):
                place.add(part)
    return found
