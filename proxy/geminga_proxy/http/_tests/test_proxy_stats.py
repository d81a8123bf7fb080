"""`/proxy-stats`: who may ask, what is answered, and the level of the log (spec PX-06, PX-07)."""

from __future__ import annotations

import json
import logging

import pytest
import trio

from geminga_proxy.config import load_config
from geminga_proxy.http._tests.played import Client, brokers, echo, proxied
from geminga_proxy.http._tests.test_admission import AUTH, token
from geminga_runtime.settings import ConfigError

RIGHTS = AUTH | {"authorizationEnabled": "true", "superUserRoles": "admin, root"}


async def test_the_level_is_told_and_changed() -> None:
    async with brokers(echo) as (broker,), proxied(broker.port, proxyLogLevel="1") as running:
        client = await Client.of(running)
        assert (await client.ask("GET", "/proxy-stats/logging"))[2] == b"1"
        status, headers, body = await client.ask("POST", "/proxy-stats/logging/2")
        assert (status, body) == (204, b"")
        assert b"content-length" not in headers
        assert running.service.log_level == 2
        assert (await client.ask("GET", "/proxy-stats/logging/?x=1"))[2] == b"2"
        for wrong in ("3", "-1"):
            status, headers, body = await client.ask("POST", f"/proxy-stats/logging/{wrong}")
            assert (status, headers[b"content-type"]) == (412, b"application/json")
            assert json.loads(body) == {"reason": "Proxy log level can be only [0-2]"}
        assert (await client.ask("POST", "/proxy-stats/logging/x"))[0] == 404
        assert running.service.log_level == 2
        assert broker.requests == []


async def test_topics_need_level_2() -> None:
    async with brokers(echo) as (broker,), proxied(broker.port) as running:
        client = await Client.of(running)
        for level in (0, 1):
            running.service.log_level = level
            status, _, body = await client.ask("GET", "/proxy-stats/topics")
            assert (status, json.loads(body)["reason"]) == (
                412,
                "Proxy doesn't have logging level 2",
            )
        running.service.log_level = 2
        assert (await client.ask("GET", "/proxy-stats/topics"))[2] == b"{}"
        assert (await client.ask("GET", "/proxy-stats/connections"))[2] == b"[]"
        assert (await client.ask("HEAD", "/proxy-stats/connections"))[0] == 200


async def test_what_is_not_there() -> None:
    async with brokers(echo) as (broker,), proxied(broker.port) as running:
        client = await Client.of(running)
        for path in ("/proxy-stats", "/proxy-stats/", "/proxy-stats/x", "/%70roxy-stats/topics"):
            assert (await client.ask("GET", path))[0] == 404, path
        status, headers, _ = await client.ask("POST", "/proxy-stats/connections")
        assert (status, headers[b"allow"]) == (405, b"GET, HEAD")
        assert (await client.ask("GET", "/proxy-stats/logging/1"))[0] == 405
        assert (await client.ask("GET", "/proxy-stats-too"))[0] == 200
        assert [request.target for request in broker.requests] == [b"/proxy-stats-too"]


async def test_only_super_users_where_rights_are_asked_for() -> None:
    async with proxied(**RIGHTS) as running:
        client = await Client.of(running)
        asked = (
            ("GET", "connections"),
            ("GET", "topics"),
            ("GET", "logging"),
            ("POST", "logging/2"),
        )
        for method, page in asked:
            path = f"/proxy-stats/{page}"
            told = await client.ask(method, path)
            assert (told[0], json.loads(told[2])) == (401, {"reason": "Authentication required"})
            told = await client.ask(method, path, b"", [("Authorization", token("joe"))])
            reason = "Client is not authorized to perform operation"
            assert (told[0], json.loads(told[2])) == (401, {"reason": reason})
            assert running.service.log_level == 0
        for role in ("admin", "root"):
            given = [("Authorization", token(role))]
            assert (await client.ask("GET", "/proxy-stats/logging", b"", given))[2] == b"0"


async def test_without_rights_every_client_may_ask() -> None:
    async with proxied(**AUTH) as running:
        client = await Client.of(running)
        assert (await client.ask("GET", "/proxy-stats/logging"))[0] == 401
        given = [("Authorization", token("joe"))]
        assert (await client.ask("POST", "/proxy-stats/logging/1", b"", given))[0] == 204


async def test_the_log_tells_which_answers_are_the_proxy_s(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "geminga_proxy.access")
    async with brokers(echo) as (broker,), proxied(broker.port, proxyLogLevel="1") as running:
        client = await Client.of(running)
        for path in ("/proxy-stats/logging", "/status.html", "/proxy-stats/x", "/admin/v2/x"):
            await client.ask("GET", path)
        with trio.fail_after(60):
            while len(caplog.messages) < 4:  # noqa: ASYNC110
                await trio.sleep(0.01)
    told = [text.partition(" GET ")[2] for text in caplog.messages]
    assert told == [
        "/proxy-stats/logging 200",
        "/status.html 200",
        "/proxy-stats/x 404",
        "/admin/v2/x passed on",
    ]


async def test_they_can_be_turned_off() -> None:
    settings = {"enableProxyStatsEndpoints": "false"}
    async with brokers(echo) as (broker,), proxied(broker.port, **settings) as running:
        client = await Client.of(running)
        assert (await client.ask("GET", "/proxy-stats/logging"))[0] == 404
        assert broker.requests == []


def test_rights_need_authentication() -> None:
    values = {"brokerServiceURL": "pulsar://b:6650", "authorizationEnabled": "true"}
    with pytest.raises(ConfigError, match="authorizationEnabled needs authenticationEnabled"):
        load_config(None, {}, values)
