"""One connection's proofs: which AUTH_RESPONSE is taken, and when (spec PX-20)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from geminga_protocol.pb.pulsar_api_pb2 import CommandConnect
from geminga_runtime.auth.api import Challenge, Identity, Peer
from geminga_runtime.auth.proof import Proof
from geminga_runtime.auth.service import Authenticator


class Slow:
    """A provider that answers its steps one by one, when a test lets it."""

    method = name = "slow"

    def __init__(self, answers: Sequence[Identity | Challenge]) -> None:
        self.answers = list(answers)
        self.seen: list[bytes] = []
        self.go = trio.Event()

    def begin(self, peer: Peer) -> Slow:
        return self

    async def step(self, data: bytes) -> Identity | Challenge:
        self.seen.append(data)
        await self.go.wait()
        return self.answers.pop(0)


class Connection:
    """Notes what it is told."""

    server_version, protocol_version, supports_refresh = "v", 21, True

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.refused: list[str] = []
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += 1

    def refuse(self, why: str) -> None:
        self.refused.append(why)


JOE = Identity("joe", "slow")


async def begun(
    nursery: trio.Nursery, *answers: Identity | Challenge
) -> tuple[Proof, Connection, Slow, list[Identity]]:
    provider, connection, let_in = Slow(answers), Connection(nursery), []

    async def accept(identity: Identity) -> Identity:
        let_in.append(identity)
        await trio.lowlevel.checkpoint()
        return identity

    proof = Proof(connection, Authenticator([provider]), 60.0, accept)
    proof.begin(CommandConnect(client_version="c", auth_method_name="slow"), Peer())
    await wait_all_tasks_blocked()
    return proof, connection, provider, let_in


async def test_a_response_while_one_is_checked_is_refused(nursery: trio.Nursery) -> None:
    """Two checks at once would let in whichever ends first, twice."""
    proof, connection, provider, let_in = await begun(nursery, JOE)
    proof.respond("slow", b"another")
    assert connection.refused == ["AUTH_RESPONSE out of turn"]
    await wait_all_tasks_blocked()
    assert provider.seen == [b""]
    provider.go.set()
    await wait_all_tasks_blocked()
    assert let_in == [JOE]


@pytest.mark.parametrize("challenged", [False, True])
async def test_a_response_in_turn_is_taken(nursery: trio.Nursery, challenged: bool) -> None:
    first: list[Identity | Challenge] = [Challenge(b"more")] if challenged else []
    proof, connection, provider, let_in = await begun(nursery, *first, JOE, JOE)
    provider.go.set()
    await wait_all_tasks_blocked()
    assert connection.written == challenged
    proof.respond("slow", b"data")
    await wait_all_tasks_blocked()
    assert provider.seen == [b"", b"data"]
    assert (connection.refused, let_in) == ([], [JOE])
    proof.respond("other", b"data")
    assert connection.refused == ["AUTH_RESPONSE of another method"]
