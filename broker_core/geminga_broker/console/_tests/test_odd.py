"""What is odd, large or broken: forms, messages, connections."""

from __future__ import annotations

import threading

import pytest
from starlette.types import Message

from geminga_broker.console import messages, site
from geminga_broker.console._tests.test_pages import TOPICS, make, rest
from geminga_broker.console._tests.visitor import HOST, visitor
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
        page = await browser.ask("POST", "/console/login", receive=receive)
        assert page.status == 403


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
        await browser.form_token()  # and its cookie
        origin = {"origin": f"http://{HOST}"}
        page = await browser.ask("POST", "/console/login", b"", origin, receive=receive)
        assert page.status == 400
    assert "defect" not in caplog.text
