"""What HTTP as such does, as Apache's broker answers it."""

from __future__ import annotations

import json

import pytest
from starlette.requests import Request
from starlette.routing import Route

from geminga_broker.admin.http.methods import Methods, unknown
from geminga_broker.admin.http.pages import URL_SHOWN_MAX, error_page
from geminga_broker.admin.http.types import refusal
from geminga_protocol._tests.cost import cpu_s


async def _nothing(_request: Request) -> None: ...


def _route(path: str, *methods: str) -> Route:
    return Route(path, _nothing, methods=list(methods))


METHODS = Methods(
    [
        _route("/admin/v2/clusters", "GET"),
        _route("/admin/v2/clusters/{cluster}", "GET", "PUT"),
        _route("/admin/v2/clusters/{cluster}", "DELETE"),
        _route("/admin/v2/clusters/all", "POST"),
    ]
)


def test_a_long_path_costs_no_look_by_each_route() -> None:
    """Whoever sends many holds up all others."""
    methods = Methods([_route(f"/admin/{{topic}}/word{n}", "GET") for n in range(500)])
    path = f"/admin/{'x' * 16_000}/word499"
    assert methods.of(path) == {"GET", "HEAD", "OPTIONS"}
    assert cpu_s(lambda: methods.of(path), 0.001) < 0.002


def test_a_long_list_of_accepted_types_is_not_looked_at() -> None:
    request = _request("GET", "/nope", "a," * 30_000 + "text/plain")
    assert error_page(request, 404).media_type == "text/html"
    assert cpu_s(lambda: error_page(request, 404), 0.001) < 0.002


def _request(method: str, path: str, accept: str = "") -> Request:
    headers = [(b"accept", accept.encode())] if accept else []
    return Request({"type": "http", "method": method, "path": path, "headers": headers})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/admin/v2/clusters", {"GET", "HEAD", "OPTIONS"}),
        ("/admin/v2/clusters/c", {"GET", "HEAD", "PUT", "DELETE", "OPTIONS"}),
        ("/admin/v2/clusters/all", {"POST", "OPTIONS"}),
        ("/admin/v2/clusters/", set()),
        ("/admin/v2/nowhere", set()),
    ],
)
def test_methods_of_paths(path: str, expected: set[str]) -> None:
    assert METHODS.of(path) == expected


def test_options_lists_methods() -> None:
    answer = unknown(_request("OPTIONS", "/x"), {"GET", "HEAD", "OPTIONS", "PUT"})
    assert (answer.status_code, answer.body) == (200, b"HEAD, GET, OPTIONS, PUT")
    assert answer.headers["allow"] == "HEAD,GET,OPTIONS,PUT"
    assert answer.headers["content-type"].startswith("text/plain")
    other = unknown(_request("OPTIONS", "/x", "application/json"), {"GET"})
    assert (other.status_code, other.body, other.headers["allow"]) == (200, b"", "GET")


def test_another_method_learns_which_there_are() -> None:
    answer = unknown(_request("POST", "/x"), {"GET", "HEAD", "OPTIONS"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET,OPTIONS")


@pytest.mark.parametrize("path", ["/admin", "/admin/v2", "/topics"])
def test_folders_lead_to_their_slash(path: str) -> None:
    answer = unknown(_request("GET", path), set())
    assert (answer.status_code, answer.headers["location"]) == (302, path + "/")


def test_an_unknown_path_is_told_in_the_clients_form() -> None:
    page = error_page(_request("GET", "/<b>"), 404)
    assert page.status_code == 404
    assert page.headers["content-type"].startswith("text/html")
    assert b"/&lt;b&gt;" in page.body
    assert b"<b>" not in page.body
    told = error_page(_request("GET", "/a", "application/json;q=1, text/html"), 404)
    assert json.loads(bytes(told.body)) == {"message": "Not Found", "url": "/a", "status": "404"}
    text = error_page(_request("GET", "/a", "text/plain"), 404)
    assert bytes(text.body).startswith(b"HTTP ERROR 404 Not Found\nURI: /a\n")
    assert error_page(_request("PUT", "/a"), 404).body == b""


def test_long_paths_are_not_repeated() -> None:
    page = error_page(_request("GET", "/" + "a" * 99_999), 404)
    assert len(page.body) < URL_SHOWN_MAX + 1000


@pytest.mark.parametrize(
    ("content_type", "kind", "path", "status"),
    [
        ("application/json", int, "/admin/v2/clusters", 0),
        ("Application/JSON; charset=utf-8", dict, "/admin/v2/clusters", 0),
        ("application/vnd.partitioned-topic-metadata+json", int, "/admin/v2/persistent/a", 0),
        ("application/x-www-form-urlencoded", int, "/admin/v2/persistent/a", 415),
        ("text/plain", int, "/admin/v2/persistent/a", 0),
        ("text/plain", int | None, "/admin/v2/non-persistent/a", 0),
        ("text/plain", dict, "/admin/v2/persistent/a", 415),
        ("text/plain", int, "/admin/v2/namespaces/a/b", 415),
        ("json", int, "/admin/v2/clusters", 400),
        (None, int, "/admin/v2/clusters", 415),
    ],
)
def test_types_of_bodies(content_type: str | None, kind: object, path: str, status: int) -> None:
    assert refusal(path, content_type, (kind,), True) == status


def test_without_a_type_and_a_body_nothing_is_refused() -> None:
    assert refusal("/admin/v2/clusters", None, (int,), False) == 0
