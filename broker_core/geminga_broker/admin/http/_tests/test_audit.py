"""What the log says of calls (OP-03, OP-08)."""

from __future__ import annotations

import logging

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_bookie.errors import NotEnoughBookies
from geminga_broker._tests.asgi import request
from geminga_broker._tests.wire import open_broker
from geminga_broker.admin._tests.test_guard import call, secured
from geminga_broker.admin.app import create_app, routes_of
from geminga_broker.admin.http.audit import TOLD, Audit
from geminga_broker.admin.openapi.uses import Reader
from geminga_broker.admin.rest import EXCEPTION_HANDLERS, Redirect, Refused, RestError, status_of
from geminga_broker.change_events.api import UnfitPolicy
from geminga_broker.log.api import LogFenced
from geminga_runtime.metadata.api import BadVersion
from geminga_runtime.observing.slow import SLOW_S

TENANT = "/admin/v2/tenants/new"
TOPIC = "/admin/v2/persistent/public/default/absent"
WORD = '{"allowedClusters": ["standalone"], "adminRoles": []}'


def lines(caplog: pytest.LogCaptureFixture, name: str = "geminga.audit") -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == name]


@pytest.fixture(autouse=True)
def _all_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "geminga.audit")
    caplog.set_level(logging.DEBUG, "geminga.access")


async def test_changes_are_told_without_authentication(caplog: pytest.LogCaptureFixture) -> None:
    async with open_broker() as broker:
        app = create_app(broker.service)
        json = [("content-type", "application/json")]
        assert (await request(app, "PUT", TENANT, WORD.encode(), json)).status == 204
        assert (await request(app, "PUT", TENANT, WORD.encode(), json)).status == 409
        assert (await request(app, "GET", TENANT)).status == 200
    made, again = lines(caplog)
    assert made.startswith(f"address=1.2.3.4:5 PUT {TENANT} by role=-: 204, 0 bytes in ")
    assert f"PUT {TENANT} by role=-: 409, " in again
    (read,) = lines(caplog, "geminga.access")
    assert read.startswith(f"address=1.2.3.4:5 GET {TENANT} by role=-: 200, ")


async def test_the_status_is_told_of_every_error(caplog: pytest.LogCaptureFixture) -> None:
    json = [("content-type", "application/json")]
    async with open_broker() as broker:
        app = create_app(broker.service)
        asked = "/admin/v2/namespaces/public/default/retention"
        assert (await request(app, "POST", asked, b'{"x": [}', json)).status == 400
    (line,) = lines(caplog)
    assert f"POST {asked} by role=-: 400, ? bytes in " in line
    statuses = [
        status_of(error)
        for error in (
            *(RestError(412, "x"), Redirect("http://b"), Refused(413), UnfitPolicy("x")),
            *(BadVersion("x"), LogFenced("x"), NotEnoughBookies("x"), ValueError("x")),
        )
    ]
    assert statuses == [412, 307, 413, 400, 409, 503, 503, 500]


async def test_a_forged_host_hides_no_change(caplog: pytest.LogCaptureFixture) -> None:
    """It is a part of a request's URL in some releases of Starlette."""
    sent = [("content-type", "application/json"), ("host", "x/topics/?a#b")]
    async with open_broker() as broker:
        app = create_app(broker.service)
        assert (await request(app, "PUT", TENANT, WORD.encode(), sent)).status == 204
    (line,) = lines(caplog)
    assert f"PUT {TENANT} by role=-: 204" in line


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("", ""),
        ("?force=true", "?force=true"),
        ("?force=true&token=s3cret&a=s3cret", "?force=true&..."),
        ("?s3cret", "?..."),
        ("?%74oken=s3cret", "?..."),
        ("?force=a\nb", r"?force=a\x0ab"),
        ("?" + "force=1&" * 1000, None),
        ("?force=" + "1" * 100_000, None),
    ],
)
async def test_what_was_asked_for_is_told(
    caplog: pytest.LogCaptureFixture, query: str, told: str | None
) -> None:
    """As a deletion by force; without secrets, bounded, in one line."""
    async with open_broker() as broker:
        app = create_app(broker.service)
        assert (await request(app, "DELETE", TOPIC + query)).status == 404
    (line,) = lines(caplog)
    if told is None:
        assert len(line) < 500
        assert f"DELETE {TOPIC}?force=1" in line
    else:
        assert f"DELETE {TOPIC}{told} by role=-: 404, " in line
    assert "s3cret" not in line


async def test_all_that_handlers_read_is_told() -> None:
    async with open_broker() as broker:
        reader = Reader()
        read = {
            name for each in routes_of(broker.service) for name in reader.uses(each.endpoint).query
        }
    assert read == TOLD


async def test_a_read_that_drops_messages_is_a_change(caplog: pytest.LogCaptureFixture) -> None:
    asked = "/admin/v2/brokers/backlog-quota-check"
    async with open_broker() as broker:
        app = create_app(broker.service)
        assert (await request(app, "GET", asked)).status == 204
        assert (await request(app, "OPTIONS", asked)).status == 200
    (line,) = lines(caplog)
    assert f"GET {asked} by role=-: 204, " in line


async def test_refused_changes_are_told(caplog: pytest.LogCaptureFixture) -> None:
    async with secured() as (_, app):
        caplog.clear()
        statuses = [
            (await call(app, "DELETE", TENANT, role)).status for role in ("prod", None, "root")
        ]
        proxied = await call(app, "DELETE", TENANT, "proxy", x_original_principal="cons\nx")
        assert [*statuses, proxied.status] == [401, 401, 404, 401]
    found = [line.partition(f"DELETE {TENANT} by ")[2].partition(",")[0] for line in lines(caplog)]
    assert found == [
        "role=prod: 401", "role=-: 401", "role=root: 404", r"role=cons\x0ax through proxy: 401",
    ]  # fmt: skip


async def test_messages_are_no_changes_but_refusals_are(caplog: pytest.LogCaptureFixture) -> None:
    place = "/topics/persistent/t/n/top"
    body = {"producerName": "p", "messages": [{"payload": "x"}]}
    async with secured() as (_, app):
        await call(app, "PUT", "/admin/v2/persistent/t/n/top", "root")
        caplog.clear()
        assert (await call(app, "POST", place, "prod", body=body)).status == 200
        assert lines(caplog) == []
        assert (await call(app, "POST", place, "cons", body=body)).status in (401, 403)
    (line,) = lines(caplog)
    assert f"POST {place} by role=cons: 4" in line


async def test_slow_calls_are_told_in_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "geminga.access")
    now_s = 0.0
    takes_s = 0.0

    async def handler(asked: Request) -> Response:
        nonlocal now_s
        now_s += takes_s
        if "wrong" in asked.url.path:
            raise RestError(412, "wrong")
        return Response("found")

    audit = Audit(status_of, clock=lambda: now_s)

    async def endpoint(asked: Request) -> Response:
        return await audit.told("/x/{y}", handler, asked)

    app = Starlette(
        routes=[Route("/x/{y}", endpoint)],
        exception_handlers=EXCEPTION_HANDLERS,
    )
    assert (await request(app, "GET", "/x/1")).status == 200
    assert lines(caplog, "geminga.access") == []
    takes_s = SLOW_S + 0.5
    assert (await request(app, "GET", "/x/1")).status == 200
    assert (await request(app, "GET", "/x/wrong")).status == 412
    assert lines(caplog, "geminga.access") == [
        "slow: address=1.2.3.4:5 GET /x/1 by role=-: 200, 5 bytes: 1500 ms",
        "slow: address=1.2.3.4:5 GET /x/wrong by role=-: 412, ? bytes: 1500 ms",
    ]
    for number in range(100):
        await request(app, "GET", f"/x/{number}")
    assert len(lines(caplog, "geminga.access")) == 10
