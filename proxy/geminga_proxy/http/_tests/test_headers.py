"""Headers that are passed on, and those that are not (spec PX-06)."""

from __future__ import annotations

import pytest

from geminga_proxy.addresses import Address
from geminga_proxy.http.client_side import RequestHead
from geminga_proxy.http.headers import (
    Follow,
    Header,
    Origin,
    RedirectRules,
    RefuseRedirect,
    Rewrite,
    end_to_end,
    is_websocket,
    plan_redirect,
    to_broker,
    to_client,
)
from geminga_proxy.trust import HttpCredentials

ORIGIN = Origin("10.0.0.9", "https", "proxy.example", "proxy.example:8443")
KNOWN = RedirectRules("http", lambda address: address.host == "b", "proxy.example")


def request(
    *headers: Header, method: bytes = b"GET", length: int | None = None, body: bool = False
) -> RequestHead:
    return RequestHead(method, b"/admin/v2/x", headers, b"1.1", body, length)


def of(headers: list[Header], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def test_headers_of_one_connection_stay_there() -> None:
    given = [
        (b"connection", b"close, X-Secret"),
        (b"x-secret", b"1"),
        (b"keep-alive", b"5"),
        (b"te", b"trailers"),
        (b"upgrade", b"h2c"),
        (b"proxy-authorization", b"x"),
        (b"transfer-encoding", b"chunked"),
        (b"x-kept", b"2"),
    ]
    assert end_to_end(given) == [(b"x-kept", b"2")]


def test_clients_cannot_set_their_principal() -> None:
    told = to_broker(
        request(
            (b"host", b"proxy:8080"),
            (b"x-original-principal", b"admin"),
            (b"x-forwarded-for", b"1.2.3.4"),
            (b"x-forwarded-proto", b"gopher"),
            (b"authorization", b"Bearer theirs"),
        ),
        ORIGIN,
        HttpCredentials(replaces=True, authorization="Bearer ours", role="joe"),
        upgrade=False,
    )
    assert of(told, b"x-original-principal") == [b"joe"]
    assert of(told, b"authorization") == [b"Bearer ours"]
    assert of(told, b"x-forwarded-for") == [b"10.0.0.9"]
    assert of(told, b"x-forwarded-proto") == [b"https"]
    assert of(told, b"x-forwarded-host") == [b"proxy.example:8443"]
    assert of(told, b"x-forwarded-server") == [b"proxy.example"]
    assert of(told, b"host") == []
    anonymous = to_broker(
        request((b"x-original-principal", b"admin")), ORIGIN, HttpCredentials(), upgrade=False
    )
    assert of(anonymous, b"x-original-principal") == []


def test_a_connection_header_cannot_take_the_principal_away() -> None:
    told = to_broker(
        request((b"connection", b"x-original-principal, authorization")),
        ORIGIN,
        HttpCredentials(replaces=True, authorization="Bearer ours", role="joe"),
        upgrade=False,
    )
    assert of(told, b"x-original-principal") == [b"joe"]
    assert of(told, b"authorization") == [b"Bearer ours"]


def test_bodies_are_reframed() -> None:
    sized = to_broker(request(length=5, body=True), ORIGIN, HttpCredentials(), upgrade=False)
    assert of(sized, b"content-length") == [b"5"]
    chunked = to_broker(request(body=True), ORIGIN, HttpCredentials(), upgrade=False)
    assert of(chunked, b"transfer-encoding") == [b"chunked"]
    none = to_broker(request(), ORIGIN, HttpCredentials(), upgrade=False)
    assert not of(none, b"content-length") + of(none, b"transfer-encoding")
    answer = to_client([(b"transfer-encoding", b"chunked"), (b"content-length", b"5")])
    assert answer == [(b"via", b"1.1 geminga-proxy")]


def test_websockets() -> None:
    asks = ((b"connection", b"keep-alive, Upgrade"), (b"upgrade", b"WebSocket"))
    assert is_websocket(request(*asks))
    assert not is_websocket(request(asks[1]))
    assert not is_websocket(request(*asks, method=b"POST"))
    assert not is_websocket(request(asks[0], (b"upgrade", b"h2c")))
    assert not is_websocket(request(asks[0], (b"upgrade", b"websocket, h2c")))
    told = to_broker(request(*asks), ORIGIN, HttpCredentials(), upgrade=True)
    assert of(told, b"upgrade") == [b"websocket"]
    assert of(told, b"connection") == [b"upgrade"]
    assert not of(to_broker(request(*asks), ORIGIN, HttpCredentials(), upgrade=False), b"upgrade")


@pytest.mark.parametrize(
    ("status", "location", "method", "can_repeat", "plan"),
    [
        (307, b"http://b:8080/x?y", b"PUT", True, Follow(Address("b", 8080), b"/x?y")),
        (308, b"http://b/x", b"POST", True, Follow(Address("b", 80), b"/x")),
        (307, b"http://b:8080/x?y", b"PUT", False, Rewrite(b"/x?y")),
        (302, b"http://b:8080/x", b"GET", True, Follow(Address("b", 8080), b"/x")),
        (302, b"http://b:8080/x", b"POST", True, Rewrite(b"/x")),
        (307, b"https://b:8443/x", b"GET", True, Rewrite(b"/x")),
        (307, b"http://b:8080", b"GET", True, Follow(Address("b", 8080), b"/")),
        (302, b"/metrics/", b"GET", True, None),
        (307, b"//b:8080/x", b"GET", True, Follow(Address("b", 8080), b"/x")),
        (307, b"http://proxy.example:81/x", b"GET", True, Rewrite(b"/x")),
        (307, b"http://b:8080//c/x", b"GET", False, Rewrite(b"/c/x")),
        (307, b"http://c:8080/x", b"GET", True, RefuseRedirect("http://c:8080/x")),
        (307, b"http://c:8080/x", b"GET", False, RefuseRedirect("http://c:8080/x")),
        (307, b"http://b@c:8080/x", b"GET", True, RefuseRedirect("http://b@c:8080/x")),
        (307, b"ftp://b/x", b"GET", True, RefuseRedirect("ftp://b/x")),
        (307, b"pulsar://b/x", b"GET", True, RefuseRedirect("pulsar://b/x")),
        (307, b"http://b:99999/x", b"GET", True, RefuseRedirect("http://b:99999/x")),
        (307, b"http:///x", b"GET", True, RefuseRedirect("http:///x")),
        (307, b"", b"GET", True, None),
        (200, b"http://b:8080/x", b"GET", True, None),
    ],
)
def test_redirects(
    status: int, location: bytes, method: bytes, can_repeat: bool, plan: object
) -> None:
    asked = request(method=method)
    found = plan_redirect(asked, status, location, KNOWN, can_repeat=can_repeat)
    assert found == plan
