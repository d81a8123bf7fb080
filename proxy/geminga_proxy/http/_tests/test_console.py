"""The broker's console behind a proxy that authenticates (spec OP-06)."""

from __future__ import annotations

import pytest

from geminga_proxy.http._tests.played import Client, brokers, echo, proxied
from geminga_proxy.http._tests.test_admission import AUTH, token
from geminga_runtime.auth.console_login import CREDENTIAL_COOKIE, to_cookie


def cookie(role: str) -> tuple[str, str]:
    return "Cookie", f"other=1; {CREDENTIAL_COOKIE}={to_cookie(token(role))}"


async def test_the_login_is_passed_on_without_anyones_credentials() -> None:
    async with brokers(echo) as (broker,), proxied(broker.port, **AUTH) as running:
        client = await Client.of(running)
        theirs = [("Authorization", token("joe")), ("X-Original-Principal", "admin")]
        for method, path in (
            ("GET", "/console/login?next=%2Fconsole"),
            ("POST", "/console/login"),
            ("GET", "/console/static/console.js"),
        ):
            body = b"token=t" if method == "POST" else b""
            assert (await client.ask(method, path, body, theirs))[0] == 200
            told = broker.headers()
            assert b"authorization" not in told
            assert b"x-original-principal" not in told
            # The host that the browser knows: forms are compared with it.
            assert told[b"x-forwarded-host"] == b"proxy"
        assert len(broker.requests) == 3


async def test_other_pages_lead_to_the_login() -> None:
    async with brokers(echo) as (broker,), proxied(broker.port, **AUTH) as running:
        client = await Client.of(running)
        for path in ("/", "/console", "/console/topics/a%2Fb?x=1", "/console/login/x"):
            status, headers, _ = await client.ask("GET", path)
            assert status == 303
            assert headers[b"location"].startswith(b"/console/login?next=%2F")
        bad = [("Cookie", f"{CREDENTIAL_COOKIE}=rubbish")]
        assert (await client.ask("GET", "/console", b"", bad))[0] == 303
        # A form or a program isn't led anywhere, nor are other paths.
        assert (await client.ask("POST", "/console/logout"))[0] == 401
        assert (await client.ask("GET", "/admin", b"", [cookie("joe")]))[0] == 401
        assert (await client.ask("GET", "/consoles", b"", [cookie("joe")]))[0] == 401
        assert broker.requests == []


async def test_the_proxys_own_answers_are_neither_kept_nor_framed() -> None:
    async with brokers(echo) as (broker,), proxied(broker.port, **AUTH) as running:
        client = await Client.of(running)
        for method, path, expected in (
            ("GET", "/console/tenants", 303), ("GET", "/", 303), ("POST", "/console/logout", 401),
        ):  # fmt: skip
            status, headers, _ = await client.ask(method, path)
            assert status == expected
            assert headers[b"cache-control"] == b"no-store"
            assert b"frame-ancestors 'none'" in headers[b"content-security-policy"]
            assert headers[b"x-frame-options"] == b"DENY"
            assert headers[b"x-content-type-options"] == b"nosniff"
        # Answers to programs stay as they were.
        assert b"cache-control" not in (await client.ask("GET", "/admin"))[1]


@pytest.mark.parametrize(
    "path",
    [
        "/console/login/../../admin/v2/tenants", "/console/static/../../admin",
        "/console/static/%2e%2e/%2e%2e/admin", "/console/static/..;/admin",
        "//console/login", "/console/static/a%2f..%2f..%2fadmin", "/console//login",
    ],
)  # fmt: skip
async def test_no_path_is_smuggled_past_the_login(path: str) -> None:
    async with brokers(echo) as (broker,), proxied(broker.port, **AUTH) as running:
        client = await Client.of(running)
        assert (await client.ask("GET", path))[0] in (303, 400, 401)
        assert broker.requests == []


async def test_a_cookie_says_who_looks() -> None:
    async with brokers(echo) as (broker,), proxied(broker.port, **AUTH) as running:
        client = await Client.of(running)
        assert (await client.ask("GET", "/console/tenants", b"", [cookie("joe")]))[0] == 200
        told = broker.headers()
        assert told[b"authorization"] == b"Bearer of-the-proxy"
        assert told[b"x-original-principal"] == b"joe"
        assert told[b"x-forwarded-host"] == b"proxy"
        # A header goes before it, and of two cookies none is taken.
        both = [cookie("joe"), ("Authorization", token("ann"))]
        await client.ask("GET", "/console", b"", both)
        assert broker.headers()[b"x-original-principal"] == b"ann"
        two = [cookie("joe"), cookie("ann")]
        assert (await client.ask("GET", "/console", b"", two))[0] == 303
        assert len(broker.requests) == 2


async def test_where_credentials_are_forwarded_the_cookie_is_enough() -> None:
    settings = AUTH | {"forwardAuthorizationCredentials": "true"}
    async with brokers(echo) as (broker,), proxied(broker.port, **settings) as running:
        client = await Client.of(running)
        assert (await client.ask("GET", "/console", b"", [cookie("joe")]))[0] == 200
        told = broker.headers()
        assert b"authorization" not in told
        assert told[b"cookie"] == cookie("joe")[1].encode()
        assert told[b"x-original-principal"] == b"joe"


async def test_a_proxy_without_authentication_passes_all_on() -> None:
    async with brokers(echo) as (broker,), proxied(broker.port) as running:
        client = await Client.of(running)
        assert (await client.ask("GET", "/console"))[0] == 200
        assert broker.headers()[b"x-forwarded-host"] == b"proxy"
        await client.ask("GET", "/admin")
        assert b"x-forwarded-host" not in broker.headers()
