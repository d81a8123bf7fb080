"""A defect in a handler is answered, and logged with its place."""

from __future__ import annotations

import json

import pytest
from starlette.requests import Request

from geminga_broker._tests.wire import open_broker
from geminga_broker.admin._tests.test_guard import call
from geminga_broker.admin.app import create_app
from geminga_broker.admin.rest import on_defect


async def test_what_no_handler_expects(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_broker() as broker:
        app = create_app(broker.service)

        async def broken(_namespace: str) -> bool:
            raise ModuleNotFoundError("No module named 'x'")

        monkeypatch.setattr(broker.service.namespaces.tenants, "names", broken)
        path = "/admin/v2/namespaces/public"
        with pytest.raises(ModuleNotFoundError):  # the web server logs it as well
            await call(app, "GET", path, None)
    (record,) = [each for each in caplog.records if "defect" in each.message]
    assert record.message == f"defect: GET {path}"
    assert record.exc_info is not None


async def test_the_answer_names_the_kind_only() -> None:
    scope = {"type": "http", "method": "GET", "path": "/x", "headers": [], "query_string": b""}
    answer = await on_defect(Request(scope | {"server": ("h", 1)}), KeyError("secret"))
    assert answer.status_code == 500
    assert json.loads(bytes(answer.body)) == {"reason": "Internal error: KeyError"}
