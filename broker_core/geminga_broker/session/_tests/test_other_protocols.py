"""Log lines about clients with another protocol, or with invalid tokens."""

from __future__ import annotations

import pytest
from trio.testing import wait_all_tasks_blocked

from geminga_broker._tests.wire import open_broker


@pytest.mark.parametrize(
    ("first", "named"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"POST /admin HTTP/1.1\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
    ],
)
async def test_the_log_names_other_protocols(
    first: bytes, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.send(first)
        assert await client.next() is None
        await wait_all_tasks_blocked()
    assert f"the peer speaks {named}" in caplog.text


async def test_a_client_that_speaks_http_is_told_where_the_web_service_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker knows its own ports: the log doesn't ask what port this is."""
    async with open_broker() as broker:
        client = broker.client()
        await client.send(b"GET /admin/v2/clusters HTTP/1.1\r\n")
        assert await client.next() is None
        await wait_all_tasks_blocked()
        told = f"(the web service is at {broker.service.addresses.web_url})"
    assert f"the peer speaks HTTP on the port for Pulsar's binary protocol {told}" in caplog.text
