"""What is asked over REST of a topic that is unloaded at that moment."""

from __future__ import annotations

import pytest

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
