"""What is asked over REST while the metadata store, or a ledger, can't be written."""

from __future__ import annotations

import json

import pytest

from geminga_bookie.errors import NotEnoughBookies
from geminga_broker._tests.wire import open_broker
from geminga_broker.admin._tests.test_guard import call
from geminga_broker.admin.app import create_app
from geminga_runtime.metadata.api import BadVersion, StoreUnavailable

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/t"
TENANT = {"allowedClusters": ["standalone"]}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/admin/v2/tenants/x", TENANT),
        ("DELETE", "/admin/v2/tenants/empty", None),
        ("PUT", "/admin/v2/namespaces/public/x", None),
        ("POST", f"{NAMESPACE}/messageTTL", 5),
        ("POST", f"{NAMESPACE}/retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}),
        ("POST", f"{NAMESPACE}/permissions/alice", ["produce"]),
        ("PUT", TOPIC, None),
        ("PUT", f"{TOPIC}/partitions", 3),
        ("PUT", f"{TOPIC}/subscription/s", None),
    ],
)
@pytest.mark.slow
async def test_the_reason_is_told(
    method: str,
    path: str,
    body: object,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def refuse(*_args: object, **_kwargs: object) -> None:
        raise StoreUnavailable("the metadata store can't write: disk is full")

    async with open_broker() as broker:
        app = create_app(broker.service)
        await call(app, "PUT", "/admin/v2/tenants/empty", None, body=TENANT)
        with monkeypatch.context() as patched:
            patched.setattr(broker.service.store, "put", refuse)
            patched.setattr(broker.service.store, "delete", refuse)
            answer = await call(app, method, path, None, body=body)
        assert answer.status == 500, answer
        assert "disk is full" in json.loads(answer.body)["reason"]
        assert not [record for record in caplog.records if record.exc_info]
        answer = await call(app, method, path, None, body=body)
        assert answer.status in (200, 204), answer


@pytest.mark.parametrize(
    ("error", "status"), [(BadVersion("/x"), 409), (NotEnoughBookies("no bookie"), 503)]
)
async def test_what_another_change_or_a_bookie_refuses(
    error: Exception, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_args: object, **_kwargs: object) -> None:
        raise error

    async with open_broker() as broker:
        app = create_app(broker.service)
        monkeypatch.setattr(broker.service.namespaces.tenants, "update", refuse)
        answer = await call(app, "POST", f"{NAMESPACE}/messageTTL", None, body=5)
        assert answer.status == status
        assert json.loads(answer.body)["reason"]
