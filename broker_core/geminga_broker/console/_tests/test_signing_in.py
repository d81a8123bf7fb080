"""Credentials: without them nothing shows, with them as much as over REST."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from geminga_broker.admin._tests.test_guard import SECRET, SETTINGS
from geminga_broker.console._tests.test_pages import TOPICS, backlog, make
from geminga_broker.console._tests.visitor import Visitor, visitor
from geminga_protocol import tokens
from geminga_runtime.auth.console_login import CREDENTIAL_COOKIE


@asynccontextmanager
async def secured() -> AsyncIterator[Visitor]:
    async with visitor(**SETTINGS) as browser:
        yield browser


async def log_in(browser: Visitor, role: str, next_page: str = "") -> str:
    """Where it leads."""
    fields = {"token": tokens.create(SECRET, role), "next": next_page}
    answer = await browser.post("/login", fields)
    assert answer.status == 303, answer.text
    assert "Path=/console; HttpOnly; SameSite=Strict" in answer.headers["set-cookie"]
    assert "Secure" not in answer.headers["set-cookie"]
    return answer.headers["location"]


async def test_nothing_shows_without_credentials() -> None:
    async with secured() as browser:
        for cookie in ("", "nonsense"):
            for path in (
                "", "/tenants", "/namespaces/public/default", f"{TOPICS}/t", "/live",
                f"{TOPICS}/t/messages", f"{TOPICS}/t/do/unload",
            ):  # fmt: skip
                page = await browser.get(path)
                assert page.status == 303, path
                assert page.headers["location"].startswith("/console/login?next=%2Fconsole")
                assert page.text == ""
            posted = await browser.post(f"{TOPICS}/t/do/unload", {})
            assert posted.headers["location"].startswith("/console/login?")
            browser.cookies[CREDENTIAL_COOKIE] = cookie or "nonsense"


BAD: list[dict[str, str]] = [
    {}, {"token": "x", "user": "y"}, {"token": "a.b.c"}, {"token": "x" * 5000}, {"token": "ä"},
    {"token": "a\r\nx: y"}, {"user": "root", "password": "root"},
]  # fmt: skip


async def test_bad_credentials_stay_out() -> None:
    async with secured() as browser:
        for fields in BAD:
            page = await browser.post("/login", fields)
            assert page.status in (400, 401), fields
            assert CREDENTIAL_COOKIE not in browser.cookies
            assert all(value not in page.text for value in fields.values() if len(value) > 4)


async def test_in_and_out_again() -> None:
    async with secured() as browser:
        assert await log_in(browser, "root", "/console/tenants") == "/console/tenants"
        assert "public" in (await browser.get("/tenants")).text
        assert "Log out" in (await browser.get("")).text
        # The cookie is for the console only.
        assert (await browser.ask("GET", "/admin/v2/tenants")).status == 401
        left = await browser.post("/logout", {})
        assert left.headers["location"] == "/console/login"
        assert CREDENTIAL_COOKIE not in browser.cookies
        assert (await browser.get("/tenants")).status == 303


async def test_a_login_leads_to_no_other_site() -> None:
    async with secured() as browser:
        for elsewhere in (
            "http://evil/console/", "//evil", "/console//evil", "/console/\\evil", "/admin",
            "\r\nx: y", "/console/../admin", "/console/%2e%2e/a",
        ):  # fmt: skip
            assert await log_in(browser, "root", elsewhere) == "/console"


async def test_what_a_role_may_not_do(caplog: pytest.LogCaptureFixture) -> None:
    async with secured() as browser:
        await log_in(browser, "root")
        browser.for_rest = {"authorization": "Bearer " + tokens.create(SECRET, "root")}
        await make(browser, "t", messages=2)
        await log_in(browser, "mallory")
        overview = await browser.get("")
        assert overview.status == 200
        assert "Not shown" in overview.text
        assert (await browser.get(f"{TOPICS}/t")).status in (401, 403)
        assert (await browser.get(f"{TOPICS}/t/messages")).status in (401, 403)
        refused = await browser.post(f"{TOPICS}/t/do/unload", {})
        assert refused.status in (401, 403)
        await log_in(browser, "root")
        with caplog.at_level(logging.INFO, "geminga.audit"):
            done = await browser.post(f"{TOPICS}/t/subscriptions/s/do/clear", {})
        assert done.status == 303
        lines = [each.getMessage() for each in caplog.records if each.name == "geminga.audit"]
        assert "skip_all by role=root: 204" in lines[-1]
        assert await backlog(browser, "t") == 0
