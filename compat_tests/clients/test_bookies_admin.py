"""Racks of bookies and bookie affinity of namespaces over REST: our broker and Apache's give the
same answers (spec BK-25).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import NamedTuple

import httpx2 as httpx
import pytest

from compat_tests.processes import ServerProcess
from geminga_broker.admin.bookies import BAD_RACK, NO_GROUP, NO_RACK

HERE = '{"rack": "/r1", "hostname": "h1"}'
HERE_TOLD = {"rack": "/r1", "hostname": "h1"}
PAIR = '{"bookkeeperAffinityGroupPrimary": "a", "bookkeeperAffinityGroupSecondary": "b"}'
PAIR_TOLD = {"bookkeeperAffinityGroupPrimary": "a", "bookkeeperAffinityGroupSecondary": "b"}
PRIMARY = "bookkeeperAffinityGroupPrimary"


class Call(NamedTuple):
    """A call, and the answer's status and JSON; a text is the reason."""

    method: str
    path: str
    body: str | None
    status: int
    told: object = None


RACKS = [
    Call("GET", "", None, 200, {}),
    Call("GET", "/b1:3181", None, 404, NO_RACK + "b1:3181"),
    Call("DELETE", "/b1:3181", None, 404, NO_RACK + "b1:3181"),
    Call("POST", "/b1:3181", HERE, 412, NO_GROUP),
    Call("POST", "/b1:3181?group=", HERE, 204),
    Call("GET", "", None, 200, {"": {"b1:3181": HERE_TOLD}}),
    Call("POST", "/b1:3181?group=default", HERE, 204),
    Call("GET", "", None, 200, {"default": {"b1:3181": HERE_TOLD}}),
    Call("GET", "/b1:3181", None, 200, HERE_TOLD),
    Call("POST", "/b1:3181?group=other", '{"rack": "/r9"}', 204),
    Call("POST", "/noport?group=other", HERE, 204),
    Call("POST", "/a%2Fb?group=a%20b%2Cc", HERE, 204),
    Call("GET", "/a%2Fb", None, 200, HERE_TOLD),
    Call("GET", "", None, 200, {
        "a b,c": {"a/b": HERE_TOLD}, "other": {"b1:3181": {"rack": "/r9"}, "noport": HERE_TOLD},
    }),
    Call("DELETE", "/a%2Fb", None, 204),
    Call("DELETE", "/noport", None, 204),
    Call("DELETE", "/noport", None, 404, NO_RACK + "noport"),
    Call("PUT", "/b1:3181", HERE, 405),
    Call("PUT", "", HERE, 405),
    Call("DELETE", "/b1:3181", None, 204),
    Call("GET", "", None, 200, {}),
]  # fmt: skip

BODIES: dict[str, tuple[int, object]] = {
    '""': (400, None), "[]": (400, None), '"x"': (400, None), "5": (400, None), "{": (400, None),
    '{"rack": ["a"]}': (400, None),
    "{}": (204, {}),
    '{"rack": ""}': (204, {"rack": ""}), '{"rack": " "}': (204, {"rack": " "}),
    '{"rack": "/"}': (204, {"rack": "/"}), '{"rack": "r2"}': (204, {"rack": "r2"}),
    '{"rack": "/r/"}': (204, {"rack": "/r/"}), '{"rack": 5}': (204, {"rack": "5"}),
    '{"rack": null, "hostname": "h"}': (204, {"hostname": "h"}),
    '{"rack": "/r", "hostname": "", "more": 1}': (204, {"rack": "/r", "hostname": ""}),
    '{"rack": "/a/b"}': (412, BAD_RACK), '{"rack": "a/b/"}': (412, BAD_RACK),
    '{"rack": "/r//x"}': (412, BAD_RACK),
}  # fmt: skip
"""What setting a rack answers, and what is set then."""

AFFINITY: dict[str, tuple[int, object]] = {
    "": (204, None), "null": (204, None),
    '""': (400, PAIR_TOLD), "[]": (400, PAIR_TOLD), '"x"': (400, PAIR_TOLD), "5": (400, PAIR_TOLD),
    f'{{"{PRIMARY}": ["a"]}}': (400, PAIR_TOLD),
    "{}": (204, {}),
    f'{{"{PRIMARY}": "c"}}': (204, {PRIMARY: "c"}),
    f'{{"{PRIMARY}": ""}}': (204, {PRIMARY: ""}),
    f'{{"{PRIMARY}": 5, "bookkeeperAffinityGroupSecondary": null, "x": 1}}': (204, {PRIMARY: "5"}),
    '{"bookkeeperAffinityGroupSecondary": "a"}': (204, {"bookkeeperAffinityGroupSecondary": "a"}),
}  # fmt: skip
"""What setting groups answers where PAIR is set, and what is set then."""


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{server.web_url}/admin/v2/", timeout=60) as client:
        yield client


def ask(client: httpx.Client, method: str, path: str, body: str | None = None) -> httpx.Response:
    headers = {} if body is None else {"content-type": "application/json"}
    content = None if body is None else body.encode()
    return client.request(method, path, content=content, headers=headers)


def told(answer: httpx.Response) -> object:
    """The JSON, or its reason; None without one."""
    if not answer.headers.get("content-type", "").startswith("application/json"):
        return None
    found = answer.json()
    return found["reason"] if answer.status_code >= 400 else found


def test_racks(client: httpx.Client) -> None:
    for call in RACKS:
        answer = ask(client, call.method, "bookies/racks-info" + call.path, call.body)
        assert (answer.status_code, told(answer)) == (call.status, call.told), call


def test_bodies_of_racks(client: httpx.Client) -> None:
    for body, (status, wanted) in BODIES.items():
        answer = ask(client, "POST", "bookies/racks-info/b2:3181?group=g", body)
        assert answer.status_code == status, body
        if status == 412:
            assert told(answer) == wanted
        read = ask(client, "GET", "bookies/racks-info/b2:3181")
        if status == 204:
            assert (read.status_code, told(read)) == (200, wanted), body
            assert ask(client, "DELETE", "bookies/racks-info/b2:3181").status_code == 204
        else:
            assert read.status_code == 404, body


def test_a_rack_without_a_body(server: ServerProcess, client: httpx.Client) -> None:
    """Apache's broker fails with a NullPointerException."""
    for body in (None, "", "null"):
        answer = ask(client, "POST", "bookies/racks-info/b3:3181?group=g", body)
        assert answer.status_code == (500 if server.kind == "apache" else 400)
        assert ask(client, "GET", "bookies/racks-info/b3:3181").status_code == 404


def test_all_bookies(client: httpx.Client) -> None:
    answer = ask(client, "GET", "bookies/all")
    assert answer.status_code == 200
    (bookie,) = answer.json().pop("bookies")
    assert bookie.keys() == {"bookieId"}
    assert bookie["bookieId"].startswith("127.0.0.1:")


def test_affinity_of_a_namespace(server: ServerProcess, client: httpx.Client) -> None:
    namespace = f"namespaces/public/affinity-{uuid.uuid4().hex[:8]}"
    path = f"{namespace}/persistence/bookieAffinity"
    ask(client, "PUT", namespace).raise_for_status()
    bundles = ask(client, "GET", f"{namespace}/bundles").json()
    fresh = ask(client, "GET", path)
    if server.kind == "apache":  # which writes local policies when they are first needed
        assert (fresh.status_code, told(fresh)) == (404, "Namespace local-policies does not exist")
    else:
        assert fresh.status_code == 204
    assert ask(client, "DELETE", path).status_code == 204
    for body, (status, wanted) in AFFINITY.items():
        assert ask(client, "POST", path, PAIR).status_code == 204
        assert told(ask(client, "GET", path)) == PAIR_TOLD
        assert ask(client, "POST", path, body).status_code == status, body
        read = ask(client, "GET", path)
        assert (read.status_code, told(read)) == (204 if wanted is None else 200, wanted), body
    assert ask(client, "POST", path, PAIR).status_code == 204
    for _ in range(2):
        assert ask(client, "DELETE", path).status_code == 204
        read = ask(client, "GET", path)
        assert (read.status_code, read.content) == (204, b"")
    assert ask(client, "PUT", path, PAIR).status_code == 405
    assert ask(client, "GET", f"{namespace}/bundles").json() == bundles
    assert ask(client, "DELETE", namespace).status_code == 204


@pytest.mark.parametrize(
    ("namespace", "status", "reason"),
    [
        ("public/none", 404, "Namespace not found"),
        ("nobody/none", 404, "Namespace not found"),
        ("pub%20lic/a%2Cb", 412, "Namespace name is not valid"),
    ],
)
def test_affinity_of_no_namespace(
    client: httpx.Client, namespace: str, status: int, reason: str
) -> None:
    path = f"namespaces/{namespace}/persistence/bookieAffinity"
    for method, body in (("GET", None), ("POST", PAIR), ("DELETE", None)):
        answer = ask(client, method, path, body)
        assert (answer.status_code, told(answer)) == (status, reason), method
