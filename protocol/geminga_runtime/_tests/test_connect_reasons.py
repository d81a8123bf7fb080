"""What a failed connection says."""

from __future__ import annotations

import pytest
import trio

from geminga_runtime.connect import connect
from geminga_runtime.errors import ConnectFailed


@pytest.mark.parametrize(
    ("host", "told"),
    [("127.0.0.1", "Connection refused"), ("localhost", r"Connection refused \((127.0.0.1|::1)\)")],
)
async def test_a_refused_connection_names_its_address_once(host: str, told: str) -> None:
    with trio.socket.socket() as held:
        await held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        with pytest.raises(ConnectFailed, match=f"^{host}:{port}: {told}$"):
            await connect(host, port)


async def test_an_unknown_host_says_so() -> None:
    with pytest.raises(ConnectFailed, match=r"^no\.such\.host\.invalid:1: [^(]*$"):
        await connect("no.such.host.invalid", 1)
