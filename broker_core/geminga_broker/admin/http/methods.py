"""Which methods a path has, what OPTIONS answers, and what a method that it lacks (Jersey's
OptionsMethodProcessor, before Apache's REST interface). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from geminga_broker.admin.http.pages import error_page
from geminga_broker.admin.http.shapes import may_fit

ORDER = ("HEAD", "DELETE", "POST", "GET", "OPTIONS", "PUT")
"""In which methods are listed."""


FOLDERS = ("/admin", "/admin/v2", "/admin/v3", "/lookup", "/topics")
"""Paths that lead to themselves with a slash."""


class Methods:
    """The methods of each path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        by_path: dict[str, tuple[Route, set[str]]] = {}
        for route in routes:
            by_path.setdefault(route.path, (route, set()))[1].update(route.methods or ())
        # Of paths that fit, the one with most fixed characters counts, as in Jersey: elsewhere a
        # name may stand for the last part.
        self._paths: dict[int, list[tuple[list[str], Route, set[str]]]] = {}
        for route, methods in sorted(by_path.values(), key=lambda each: -_fixed(each[0].path)):
            parts = route.path.split("/")
            self._paths.setdefault(len(parts), []).append((parts, route, methods))

    def of(self, path: str) -> set[str]:
        """Those of a path, with HEAD where there is GET, and OPTIONS; empty for an unknown path."""
        parts = path.split("/")
        for own, route, methods in self._paths.get(len(parts), ()):
            if may_fit(own, parts) and route.path_regex.match(path):
                return {*methods, "OPTIONS"}
        return set()


def _fixed(path: str) -> int:
    return sum(len(part) for part in path.split("/") if not part.startswith("{"))


def listed(methods: Iterable[str]) -> list[str]:
    """In order; others come last."""
    return sorted(methods, key=lambda each: ORDER.index(each) if each in ORDER else len(ORDER))


def unknown(request: Request, methods: set[str]) -> Response:
    """The answer to OPTIONS, to a method that the path lacks, and to an unknown path."""
    path = str(request.scope["path"])
    if path in FOLDERS:
        return RedirectResponse(f"{path}/", status_code=302)
    if not methods:
        return error_page(request, 404)
    if request.method == "OPTIONS":
        return _options(request.headers.get("accept", ""), listed(methods))
    allowed = listed(methods - {"HEAD"})
    return error_page(request, 405, {"allow": ",".join(allowed)})


def _options(accept: str, methods: list[str]) -> Response:
    """The list as text, or nothing in another type that the client wants."""
    headers = {"allow": ",".join(methods)}
    wanted = accept.partition(",")[0].partition(";")[0].strip()
    if wanted in ("", "*/*", "text/*", "text/plain"):
        return Response(", ".join(methods), headers={**headers, "content-type": "text/plain"})
    return Response(headers=headers)
