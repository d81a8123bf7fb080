from __future__ import annotations

import pytest
import trio
import trio.testing

from geminga._admin._tests.serving import GET, POST, Web, answer
from geminga._admin.errors import (
    AdminError,
    NotAuthorizedError,
    RequestTimeoutError,
    UnreachableError,
)
from geminga._admin.requests import Request
from geminga._admin.transport import Transport
from geminga.auth import Authentication, AuthenticationBasic, AuthenticationToken
from geminga.errors import AlreadyClosedError, AuthenticationError, TlsError
from geminga_runtime.http.client import Origin

TOKEN = AuthenticationToken("secret")
BEARER = "Bearer secret"


def redirect(to: str, status: int = 307) -> bytes:
    return answer(status, Location=to)


def credentials(web: Web) -> list[tuple[str, str | None]]:
    """What each host was shown."""
    return [(host, headers.get("authorization")) for host, _, headers, _ in web.asked]


async def test_a_request_as_it_is_sent(nursery: trio.Nursery) -> None:
    web = Web(nursery, lambda *_: answer(200, b"[]"))
    transport = web.transport("http://a:8080", authentication=AuthenticationBasic("u", "p"))
    assert (await transport.ask(POST)).body == b"[]"
    [(host, line, headers, body)] = web.asked
    assert (host, line, body) == ("a", "POST /admin/v2/tenants/t?a=b+c", b"{}")
    assert headers["content-type"] == "application/json"
    assert headers["authorization"] == "Basic dTpw"
    assert headers["host"] == "a:8080"
    await transport.aclose()


async def test_connections_are_kept(nursery: trio.Nursery) -> None:
    web = Web(nursery, lambda *_: answer(204))
    transport = web.transport("http://a:8080")
    opened = 0
    open_ = web.__call__

    async def counted(origin: Origin) -> trio.abc.Stream:
        nonlocal opened
        opened += 1
        return await open_(origin)

    transport._client._opener = counted
    for _ in range(3):
        await transport.ask(GET)
    assert opened == 1
    await transport.aclose()


async def test_the_next_host_is_asked(nursery: trio.Nursery) -> None:
    web = Web(nursery, lambda *_: answer(200, b"[]"))
    web.away = {"a"}
    web.without_tls = {"b"}
    transport = web.transport("http://a:8080,b:8080,c:8080")
    for request in (GET, POST, GET):
        await transport.ask(request)
    # It stays where it found one.
    assert [host for host, *_ in web.asked] == ["c", "c", "c"]
    await transport.aclose()


async def test_the_first_error_is_raised_if_no_host_answers(nursery: trio.Nursery) -> None:
    web = Web(nursery, lambda *_: answer(204))
    web.away = {"a", "b"}
    with pytest.raises(UnreachableError, match="a:8080: refused"):
        await web.transport("http://a:8080,b:8080").ask(GET)
    web.without_tls = {"c"}
    with pytest.raises(TlsError, match="c:8080: no TLS"):
        await web.transport("http://c:8080,a:8080").ask(GET)


async def test_what_may_have_had_its_effect_is_not_sent_again(nursery: trio.Nursery) -> None:
    web = Web(nursery, lambda origin, *_: None if origin.host == "a" else answer(204))
    transport = web.transport("http://a:8080,b:8080")
    with pytest.raises(UnreachableError, match="closed without"):
        await transport.ask(POST)
    assert len(web.asked) == 1
    transport = web.transport("http://a:8080,b:8080")
    await transport.ask(Request("PUT", "/p"))
    assert [host for host, *_ in web.asked] == ["a", "a", "b"]


async def test_redirects_are_followed_with_method_and_body(nursery: trio.Nursery) -> None:
    def answering(origin: Origin, line: str, *_: object) -> bytes:
        return redirect("http://b:8081/p?authoritative=true") if origin.host == "a" else answer(204)

    web = Web(nursery, answering)
    await web.transport("http://a:8080").ask(POST)
    assert web.asked[1][:2] == ("b", "POST /p?authoritative=true")
    assert web.asked[1][3] == b"{}"


async def test_a_redirect_within_a_host(nursery: trio.Nursery) -> None:
    web = Web(
        nursery,
        lambda _, line, *__: answer(204) if line == "GET /there" else redirect("/there", 302),
    )
    transport = web.transport("http://a:8080", authentication=TOKEN)
    await transport.ask(GET)
    assert credentials(web) == [("a", BEARER), ("a", BEARER)]
    with pytest.raises(AdminError, match="for GET only"):
        await transport.ask(POST)


@pytest.mark.parametrize(
    ("url", "to", "trusted", "follows"),
    [
        ("http://a:8080,b:8080", "http://b:8080/", (), True),
        ("http://a:8080", "http://b:8080/", (), False),
        ("http://a:8080", "https://b:8443/", (), False),
        ("http://a:8080", "http://a:8081/", (), False),
        ("https://a:8443", "https://b:8443/", (), True),
        ("https://a:8443", "https://b:8443/", ("c",), False),
        ("http://a:8080", "http://b.example:8080/", ("*.example",), True),
        ("http://a:8080", "http://b.example:8080/", ("b.example:8080",), True),
        ("http://a:8080", "http://b.example:8080/", ("b.example:8081",), False),
        ("http://a:8080", "http://b.example.evil:8080/", ("*.example",), False),
        ("http://a:8080", "http://evil/?b.example", ("b.example",), False),
    ],
)
async def test_where_credentials_follow(
    nursery: trio.Nursery, url: str, to: str, trusted: tuple[str, ...], follows: bool
) -> None:
    web = Web(nursery, lambda origin, *_: redirect(to) if not credentials(web)[1:] else answer(204))
    transport = web.transport(url, authentication=TOKEN, trusted_broker_hosts=trusted)
    await transport.ask(GET)
    assert [shown is not None for _, shown in credentials(web)] == [True, follows]


async def test_credentials_don_t_follow_unverified_names(nursery: trio.Nursery) -> None:
    for option in ({"tls_validate_hostname": False}, {"tls_allow_insecure_connection": True}):
        web = Web(
            nursery,
            lambda origin, *_: redirect("https://b:1/") if origin.host == "a" else answer(204),
        )
        transport = web.transport("https://a:8443", authentication=TOKEN, **option)
        await transport.ask(GET)
        assert credentials(web) == [("a", BEARER), ("b", None)]


async def test_credentials_once_withheld_stay_so(nursery: trio.Nursery) -> None:
    """Who sent the request back has chosen its path."""

    def answering(origin: Origin, *_: object) -> bytes:
        if origin.host == "b":
            return redirect("http://a:8080/admin/v2/tenants/other")
        return redirect("http://b:8080/") if len(web.asked) == 1 else answer(401)

    web = Web(nursery, answering)
    with pytest.raises(NotAuthorizedError, match="a redirect leads there") as caught:
        await web.transport("http://a:8080", authentication=TOKEN).ask(Request("DELETE", "/x"))
    assert caught.value.status == 401
    assert credentials(web) == [("a", BEARER), ("b", None), ("a", None)]


@pytest.mark.parametrize(
    ("to", "text"),
    [
        ("", "no valid URL"),
        ("http://b:x/", "no valid URL"),
        ("ftp://b/", "no valid URL"),
        ("http://a:8080/", "from https to http"),
        ("https://a:8443/", "too often"),
    ],
)
async def test_bad_redirects(nursery: trio.Nursery, to: str, text: str) -> None:
    web = Web(nursery, lambda *_: redirect(to))
    transport = web.transport("https://a:8443", redirects_max=3)
    with pytest.raises(AdminError, match=text) as caught:
        await transport.ask(GET)
    assert caught.value.status == 307
    assert len(web.asked) <= 4


async def test_a_broker_that_a_redirect_names_is_away(nursery: trio.Nursery) -> None:
    web = Web(nursery, lambda *_: redirect("http://b:8080/") if len(web.asked) < 2 else answer(204))
    web.away = {"b"}
    await web.transport("http://a:8080,c:8080").ask(GET)
    assert [host for host, *_ in web.asked] == ["a", "c"]


async def test_an_answer_in_time(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    class Silent:
        async def __call__(self, origin: Origin) -> trio.abc.Stream:
            await trio.sleep_forever()
            raise AssertionError

    web = Web(nursery, lambda *_: answer(204))
    transport = web.transport("http://a:8080", request_timeout_s=5.0)
    transport._client._opener = Silent()
    began = trio.current_time()
    with pytest.raises(RequestTimeoutError, match="within 5 s"):
        await transport.ask(GET)
    assert trio.current_time() - began == 5.0


async def test_a_large_answer_is_refused(nursery: trio.Nursery) -> None:
    web = Web(nursery, lambda *_: answer(200, b"x" * 1001))
    with pytest.raises(UnreachableError, match="too long"):
        await web.transport("http://a:8080", answer_bytes_max=1000).ask(GET)


async def test_credentials_that_can_t_be_had(nursery: trio.Nursery) -> None:
    class Without(Authentication):
        async def http_headers(self) -> dict[str, str]:
            raise AuthenticationError("no token today")

    web = Web(nursery, lambda *_: answer(204))
    with pytest.raises(AuthenticationError, match="no token today"):
        await web.transport("http://a:8080", authentication=Without("x")).ask(GET)
    assert web.asked == []


async def test_a_closed_client(nursery: trio.Nursery) -> None:
    transport: Transport = Web(nursery, lambda *_: answer(204)).transport("http://a:8080")
    await transport.aclose()
    await transport.aclose()
    with pytest.raises(AlreadyClosedError):
        await transport.ask(GET)
