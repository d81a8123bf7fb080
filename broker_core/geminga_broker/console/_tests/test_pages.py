"""Pages and actions, straight into the application."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
import trio
import trio.testing

from geminga_broker.console._tests.visitor import Visitor, visitor
from geminga_broker.console.answers import Schema
from geminga_broker.console.entry import with_console
from geminga_broker.console.messages import INLINE_SIZE_MAX
from geminga_broker.console.payloads import Payloads, Shown
from geminga_broker.console.site import DECODINGS_MAX

HOSTILE = '"><img src=x onerror=alert(1)>%2F ä'
REST = "/admin/v2/persistent/public/default"
TOPICS = "/topics/persistent/public/default"


async def rest(browser: Visitor, method: str, path: str, body: object = None) -> object:
    content = b"" if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", **browser.for_rest}
    answer = await browser.ask(method, path, content, headers)
    assert answer.status < 300, answer.text
    return json.loads(answer.text) if answer.text else None


async def make(browser: Visitor, topic: str, subscription: str = "s", messages: int = 0) -> None:
    path = f"{REST}/{topic}/subscription/{quote(quote(subscription, safe=''), safe='')}"
    await rest(browser, "PUT", path, "earliest")
    if messages:
        sent = {"messages": [{"payload": f"m-{number}"} for number in range(messages)]}
        await rest(
            browser, "POST", f"/topics/persistent/public/default/{topic}?withoutSchema=true", sent
        )


async def backlog(browser: Visitor, topic: str) -> int:
    found = await rest(browser, "GET", f"{REST}/{topic}/stats")
    assert isinstance(found, dict)
    return int(found["subscriptions"]["s"]["msgBacklog"])


async def test_every_page() -> None:
    async with visitor() as browser:
        await make(browser, "t", messages=3)
        await rest(browser, "PUT", f"{REST}/p/partitions", 2)
        for path, part in {
            "": "Brokers", "/tenants": "public", "/tenants/public": "default",
            "/namespaces/public/default": ">t</a>",
            "/namespaces/public/default?domain=non-persistent": "None found",
            "/namespaces/public/default?q=T&page=9": "1 of 2",
            f"{TOPICS}/t": "Subscriptions", f"{TOPICS}/p": "p-partition-1",
            f"{TOPICS}/t/subscriptions/s": "Cursor",
            f"{TOPICS}/t/messages": "m-2", f"{TOPICS}/t/messages?subscription=s": "m-0",
            f"{TOPICS}/t/messages?order=earliest&from=3": "m-2",
            f"{TOPICS}/t/do/send": "Payload", f"{TOPICS}/t/subscriptions/s/do/reset": "Message id",
            "/live": "in", f"/live/{TOPICS.removeprefix('/topics/')}/t": "backlog",
        }.items():  # fmt: skip
            page = await browser.get(path)
            assert page.status == 200, (path, page.text)
            assert part in page.text, path
            assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert (await browser.ask("GET", "/")).headers["location"] == "/console"
        assert (await browser.ask("GET", REST)).headers.get("content-security-policy") is None


async def test_findings_of_partitions_say_of_which() -> None:
    async with visitor() as browser:
        await rest(browser, "PUT", f"{REST}/p/partitions", 2)
        await rest(browser, "PUT", f"{REST}/p/subscription/s")
        for path in (f"{TOPICS}/p", f"{TOPICS}/p/subscriptions/s"):
            page = await browser.get(path)
            for number in range(2):
                assert f"p-partition-{number}:</span>" in page.text, path


async def test_why_a_subscription_gets_nothing() -> None:
    async with visitor() as browser:
        await make(browser, "t", messages=1)
        for path in (f"{TOPICS}/t", f"{TOPICS}/t/subscriptions/s"):
            assert "No consumer is connected" in (await browser.get(path)).text


async def test_what_is_not_there() -> None:
    async with visitor() as browser:
        await make(browser, "t")
        for path in (
            "/tenants/no", "/namespaces/public/no", f"{TOPICS}/no", f"{TOPICS}/t/subscriptions/no",
            f"{TOPICS}/t/messages?subscription=no", f"{TOPICS}/t/do/no", f"{TOPICS}/t/do/skip",
            "/no", "/topics/what/public/default/t", "/static/../app.py", "/static/no",
        ):  # fmt: skip
            assert (await browser.get(path)).status == 404, path
        # To look for a subscription makes none.
        assert await rest(browser, "GET", f"{REST}/t/subscriptions") == ["s"]


async def test_names_and_payloads_are_no_markup() -> None:
    async with visitor() as browser:
        topic = quote(HOSTILE, safe="")
        await make(browser, topic, HOSTILE)
        message = {"payload": HOSTILE, "key": HOSTILE, "properties": {HOSTILE: HOSTILE}}
        path = f"/topics/persistent/public/default/{topic}?withoutSchema=true"
        await rest(browser, "POST", path, {"messages": [message]})
        at = f"{TOPICS}/{topic}"
        for path in (
            "/namespaces/public/default", at, f"{at}/messages", f"{at}/do/terminate",
            f"{at}/subscriptions/{topic}", f"{at}/messages?subscription={topic}",
            f"{at}/subscriptions/{topic}/do/skip", f"/namespaces/public/default?q={topic}",
            f"/login?next={topic}", f"/tenants?q={topic}", f"{at}?did={topic}&id={topic}",
            f"/tenants/{topic}", f"{at}x",
        ):  # fmt: skip
            page = await browser.get(path)
            assert page.status in (200, 404, 412), (path, page.text)
            assert "<img src=x" not in page.text, path
            assert "&lt;img" in page.text or path.startswith(("/login", "/tenants/")), path
        answer = await browser.post(f"{at}/do/terminate", {"name": "no"})
        assert answer.status == 400
        assert "<img src=x" not in answer.text


async def test_long_messages_are_decoded_beside_the_loop_two_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once: list[int] = []
    running = 0

    async def meet() -> None:
        nonlocal running
        running += 1
        at_once.append(running)
        await trio.testing.wait_all_tasks_blocked(0.05)
        running -= 1

    def shown(_self: Payloads, data: bytes) -> Shown:
        if len(data) > INLINE_SIZE_MAX:
            trio.from_thread.run(meet)  # an error on the loop itself
        return Shown(str(len(data)), "text")

    async def look(browser: Visitor) -> None:
        page = await browser.get(f"{TOPICS}/t/messages")
        assert page.status == 200, page.text
        assert ">257</pre>" in page.text
        assert ">3</pre>" in page.text

    monkeypatch.setattr(Payloads, "shown", shown)
    async with visitor() as browser:
        await make(browser, "t", messages=1)
        path = "/topics/persistent/public/default/t?withoutSchema=true"
        await rest(browser, "POST", path, {"messages": [{"payload": "x" * 257}]})
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(look, browser)
    assert len(at_once) == 4
    assert max(at_once) == DECODINGS_MAX == 2


async def test_a_long_schema_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def definition(*_: object) -> Schema:
        return Schema(0, "AVRO", f'"int"{" " * INLINE_SIZE_MAX}')

    def shown(_self: Payloads, _data: bytes) -> Shown:
        trio.from_thread.run(trio.lowlevel.checkpoint)  # an error on the loop itself
        return Shown("read beside it", "text")

    monkeypatch.setattr(Payloads, "shown", shown)
    monkeypatch.setattr("geminga_broker.console.messages.schema_of", definition)
    async with visitor() as browser:
        await make(browser, "t", messages=1)
        assert "read beside it" in (await browser.get(f"{TOPICS}/t/messages")).text


async def test_actions() -> None:
    async with visitor() as browser:
        await make(browser, "t", messages=3)
        at = f"{TOPICS}/t"
        sub = f"{at}/subscriptions/s"
        sent = await browser.post(f"{at}/do/send", {"payload": "hé", "properties": "a = b\n\n"})
        assert sent.status == 303
        told = await browser.get(sent.headers["location"].removeprefix("/console"))
        assert "The message is stored. Its id is" in told.text
        looked = (await browser.get(f"{at}/messages")).text
        assert '<pre tabindex="0">hé</pre>' in looked
        assert "<dt>a</dt><dd>b</dd>" in looked
        assert (await browser.ask("GET", "/admin/v2/schemas/public/default/t/schema")).status == 404
        assert await backlog(browser, "t") == 4
        for action, fields, left in (
            ("skip", {"count": "1"}, 3), ("clear", {}, 0), ("reset", {"to": "earliest"}, 4),
            ("reset", {"to": "time", "time": "2200-01-01T00:00"}, 0),
        ):  # fmt: skip
            done = await browser.post(f"{sub}/do/{action}", fields)
            assert done.status == 303, done.text
            assert done.headers["location"].startswith(f"/console{sub}?did={action}")
            assert await backlog(browser, "t") == left, action
        assert (await browser.post(f"{at}/do/unload", {})).status == 303
        assert (await browser.post(f"{at}/do/terminate", {"name": "t"})).status == 303
        refused = await browser.post(f"{at}/do/send", {"payload": "kept <x>"})
        assert "terminated" in refused.text
        assert "kept &lt;x&gt;</textarea>" in refused.text


SENSELESS: list[tuple[str, dict[str, str]]] = [
    ("skip", {}), ("skip", {"count": "0"}), ("skip", {"count": "9" * 30}), ("reset", {}),
    ("reset", {"to": "time"}), ("reset", {"to": "time", "time": "9999"}),
    ("reset", {"to": "message", "message": "1"}), ("reset", {"to": "message", "message": "-1:2"}),
]  # fmt: skip


async def test_a_form_that_makes_no_sense() -> None:
    async with visitor() as browser:
        await make(browser, "t", messages=2)
        for action, fields in SENSELESS:
            page = await browser.post(f"{TOPICS}/t/subscriptions/s/do/{action}", fields)
            assert page.status == 400, fields
            assert 'role="alert"' in page.text
        assert await backlog(browser, "t") == 2


async def test_another_sites_page_can_do_nothing() -> None:
    async with visitor() as browser:
        await make(browser, "t", messages=2)
        path = f"{TOPICS}/t/subscriptions/s/do/clear"
        assert (await browser.post(path, {}, origin="evil")).status == 403
        assert (await browser.post(path, {"form_token": "0" * 32})).status == 403
        token = await browser.form_token()
        browser.cookies.clear()
        body = f"form_token={token}".encode()
        answer = await browser.ask(
            "POST", f"/console{path}", body, {"origin": "http://b:8080", "cookie": ""}
        )
        assert answer.status == 403
        assert (await browser.get(path)).status == 200
        assert await backlog(browser, "t") == 2


async def test_a_broker_without_a_console() -> None:
    async with visitor(webConsoleEnabled="false") as browser:
        assert (await browser.ask("GET", "/console")).status == 404
        assert with_console(browser.app, browser.service) is browser.app
