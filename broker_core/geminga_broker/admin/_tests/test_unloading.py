"""What is asked over REST of a topic that is unloaded at that moment."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
import trio

from geminga_broker._tests.wire import open_broker
from geminga_broker.admin._tests.test_guard import call
from geminga_broker.admin.app import create_app
from geminga_broker.cluster.topics import Topics
from geminga_broker.topic.topic import Topic
from geminga_protocol.topic_name import TopicName

ONE = "/admin/v2/persistent/public/default/t"
NAME = TopicName.parse("persistent://public/default/t")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/truncate"),
        ("POST", "/subscription/s/resetcursor/1"),
        ("DELETE", "/subscription/s"),
    ],
)
async def test_it_is_refused(method: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_broker() as broker:
        app = create_app(broker.service)
        topic = await broker.service.topics.create(NAME)
        get = broker.service.topics.get
        if "/s" in path:
            await call(app, "PUT", f"{ONE}/subscription/s", None, body="earliest")

        async def unload(name: TopicName, *, create: bool, by_hand: bool = False) -> Topic:
            found = await get(name, create=create, by_hand=by_hand)
            await Topics.unload(broker.service.topics, name)
            return found

        monkeypatch.setattr(broker.service.topics, "get", unload)
        answer = await call(app, method, ONE + path, None)
        assert answer.status == 503
        assert b"unloaded" in answer.body or b"unavailable" in answer.body
        monkeypatch.undo()
        found = await broker.service.topics.get(NAME, create=False)
        assert found is not topic
        assert list(found.subscriptions) == (["s"] if "/s" in path else [])


def _pausing(method: Any, chance: Random) -> Any:
    """The method, with turns of others before and behind it."""

    async def paused(*args: Any, **more: Any) -> Any:
        for _ in range(chance.randrange(6)):
            await trio.lowlevel.checkpoint()
        found = await method(*args, **more)
        for _ in range(chance.randrange(6)):
            await trio.lowlevel.checkpoint()
        return found

    return paused


@pytest.mark.parametrize("parts", [0, 3])
@pytest.mark.parametrize("unloads", [0, 8, 16])
@pytest.mark.slow
async def test_many_at_once(unloads: int, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One deletes it, the others are told that it isn't there (Apache's broker answers 500 to some,
    with "Topic is already fenced"), and unloads are done or come too late.
    """
    chance = Random(20)
    async with open_broker() as broker:
        app, kind = create_app(broker.service), type(broker.service.store)
        for name in ("get", "put", "delete"):
            monkeypatch.setattr(kind, name, _pausing(getattr(kind, name), chance))
        for number in range(10):
            one, tail = f"{ONE}{number}", "/partitions" if parts else ""
            made = await call(app, "PUT", one + tail, None, body=parts or None)
            assert made.status == 204
            told: Counter[tuple[str, int]] = Counter()

            async def ask(method: str, path: str, told: Counter[tuple[str, int]] = told) -> None:
                told[method, (await call(app, method, path, None)).status] += 1

            asked = [("PUT", one + "/unload")] * unloads + [("DELETE", one + tail)] * (16 - unloads)
            chance.shuffle(asked)
            async with trio.open_nursery() as nursery:
                for each in asked:
                    nursery.start_soon(ask, *each)
            assert set(told) <= {("PUT", 204), ("PUT", 404), ("DELETE", 204), ("DELETE", 404)}
            assert told["DELETE", 204] == min(1, 16 - unloads)
