"""What is odd, large or broken: forms, messages, connections."""

from __future__ import annotations

import threading

import pytest
from starlette.types import Message, Receive

from geminga_broker.console import messages, site
from geminga_broker.console._tests.test_pages import TOPICS, make, rest
from geminga_broker.console._tests.visitor import Visitor, visitor
from geminga_broker.console.calls import CallFailed, HttpAnswer, TopicPath
from geminga_broker.console.site import FORM_INLINE_BYTES_MAX, Visit

ENTRY = messages._entry
FIELDS = site._fields


async def test_a_message_that_cant_be_read_hides_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def entry(
        visit: Visit, topic: TopicPath, subscription: str, order: str, number: int
    ) -> HttpAnswer:
        if number == 1:
            raise CallFailed(500, "too large")
        return await ENTRY(visit, topic, subscription, order, number)

    monkeypatch.setattr(messages, "_entry", entry)
    async with visitor() as browser:
        await make(browser, "t", messages=1)
        path = "/topics/persistent/public/default/t?withoutSchema=true"
        await rest(browser, "POST", path, {"messages": [{"payload": "m-1"}]})
        page = await browser.get(f"{TOPICS}/t/messages")
        assert page.status == 200
        assert "read: too large" in page.text
        assert page.text.count(">m-0</pre>") == 1


async def test_forms_of_others_are_not_read() -> None:
    """Who has no credentials could keep the broker busy with them."""

    async def receive() -> Message:
        raise AssertionError("the body was read")

    async with visitor() as browser:
        assert await login_status(browser, {"host": "b"}, receive) == 403


async def test_large_forms_are_decoded_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []

    def fields(body: bytes) -> dict[str, str]:
        threads.append(threading.current_thread() is threading.main_thread())
        return FIELDS(body)

    monkeypatch.setattr(site, "_fields", fields)
    async with visitor() as browser:
        await make(browser, "t")
        for size in (10, FORM_INLINE_BYTES_MAX):
            page = await browser.post(f"{TOPICS}/t/do/send", {"payload": "x" * size})
            assert page.status == 303, page.text
    assert threads == [True, False]


async def test_a_body_that_breaks_off_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async with visitor() as browser:
        await browser.form_token()
        cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        given = {"host": "b:8080", "origin": "http://b:8080", "cookie": cookies}
        assert await login_status(browser, given, receive) == 400
    assert "defect" not in caplog.text


async def login_status(browser: Visitor, headers: dict[str, str], receive: Receive) -> int:
    """Of a login whose body is received so."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/console/login", "query_string": b"",
        "raw_path": b"/console/login", "client": ("1.2.3.4", 5), "server": ("here", 8080),
        "scheme": "http", "root_path": "", "http_version": "1.1",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    await browser.app(scope, receive, send)
    return int(sent[0]["status"])
