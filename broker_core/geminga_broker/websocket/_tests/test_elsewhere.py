"""WebSockets for topics that another broker of the cluster serves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import NamedTuple

import trio

from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.memory import MemoryBookie
from geminga_broker.admin._tests.test_guard import SECRET, SETTINGS, call
from geminga_broker.admin.app import create_app
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.config import BrokerConfig, load_config
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.process import log_options
from geminga_broker.service import BrokerService, open_service
from geminga_broker.session.serving import handle_connection
from geminga_broker.websocket._tests.test_service import ON, Open, opening, payload, text_of
from geminga_protocol import tokens
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.server import Bound, serve

TOPIC = TopicName.parse("persistent://public/default/t")
PATH = "persistent/public/default/t"


class Brokers(NamedTuple):
    """`there` owns the topic, WebSockets are opened `here`."""

    here: BrokerService
    there: BrokerService
    open: Open


@asynccontextmanager
async def brokers(config: BrokerConfig) -> AsyncIterator[Brokers]:
    store, bookie = MemoryMetadataStore(), MemoryBookie()
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        found: list[BrokerService] = []
        for number in range(2):
            session = store.another_session()
            client = BookkeeperClient(KnownBookies([bookie]), session)
            factory = ManagedLedgerFactory(client, session, log_options(config))
            logs = await stack.enter_async_context(factory)
            service = await stack.enter_async_context(open_service(config, session, logs))
            handler = partial(handle_connection, service=service)
            listening = partial(serve, handler, host="127.0.0.1", port=0)
            bound: list[Bound] = await nursery.start(listening)
            port = bound[0].port
            addresses = Addresses(f"pulsar://127.0.0.1:{port}", f"http://b{number}:2")
            await service.start(addresses, is_whole_cluster=not number)
            found.append(service)
        here, there = found
        await there.ownership.acquire(await there.namespaces.bundle_of(TOPIC))
        async with opening(create_app(here)) as open_:
            yield Brokers(here, there, open_)
        nursery.cancel_scope.cancel()


async def test_messages_go_around() -> None:
    async with brokers(load_config(None, {}, ON)) as found:
        consumer = await found.open(f"consumer/{PATH}/s")
        producer = await found.open(f"producer/{PATH}")
        for text in ("a", "b"):
            await producer.say(payload(text))
            assert (await producer.hear())["result"] == "ok"
            message = await consumer.hear()
            assert text_of(message) == text
            await consumer.say({"messageId": message["messageId"]})
        assert str(TOPIC) in found.there.topics.loaded
        assert str(TOPIC) not in found.here.topics.loaded
    assert not found.here.connections.sessions


BROKERS_TOKEN = tokens.create(SECRET, "root")
SECURE = {
    **ON,
    **SETTINGS,
    "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
    "brokerClientAuthenticationParameters": f"token:{BROKERS_TOKEN}",
}


async def grant(found: Brokers, role: str, *actions: str) -> None:
    path = f"/admin/v2/namespaces/public/default/permissions/{role}"
    method, body = ("POST", list(actions)) if actions else ("DELETE", None)
    answer = await call(create_app(found.here), method, path, "root", body=body)
    assert answer.status == 204, answer


def authorization(role: str) -> dict[str, str]:
    return {"authorization": f"Bearer {tokens.create(SECRET, role)}"}


async def test_the_right_to_look_up_is_not_the_right_to_publish() -> None:
    """The other broker would let this broker in, which is a superuser there."""
    async with brokers(load_config(None, {}, SECURE)) as found:
        await grant(found, "reads", "consume")
        await grant(found, "writes", "produce")
        peer = await found.open(f"producer/{PATH}", accepted=False, **authorization("reads"))
        status, reason = await peer.refusal()
        assert (status, "not authorized" in reason) == (403, True), reason
        peer = await found.open(f"consumer/{PATH}/s", accepted=False, **authorization("writes"))
        assert (await peer.refusal())[0] == 403
        topic = await found.there.topics.get(TOPIC, create=True)
        assert topic.idle


async def test_the_right_to_consume_is_not_the_right_to_publish_dead_letters() -> None:
    """This broker's client would publish them to any topic that another one serves."""
    async with brokers(load_config(None, {}, SECURE)) as found:
        await grant(found, "reads", "consume")
        await grant(found, "both", "consume", "produce")
        for query in ("maxRedeliverCount=1", "deadLetterTopic=t2", "deadLetterTopic=a/b/c"):
            peer = await found.open(
                f"consumer/{PATH}/s", query, accepted=False, **authorization("reads")
            )
            status, reason = await peer.refusal()
            assert (status, "not authorized to publish" in reason) == (403, True), reason
        await found.open(f"consumer/{PATH}/s", **authorization("reads"))
        consumer = f"consumer/{PATH}/t"
        peer = await found.open(consumer, "maxRedeliverCount=1", **authorization("both"))
        await grant(found, "both", "consume")
        await grant(found, "both")
        with trio.fail_after(30):
            await peer.done.wait()


async def test_a_right_that_is_revoked_ends_what_it_opened() -> None:
    async with brokers(load_config(None, {}, SECURE)) as found:
        await grant(found, "writes", "produce")
        producer = await found.open(f"producer/{PATH}", **authorization("writes"))
        await producer.say(payload("a"))
        assert (await producer.hear())["result"] == "ok"
        await grant(found, "others", "produce")
        await producer.say(payload("b"))
        assert (await producer.hear())["result"] == "ok", "it is not concerned"
        await grant(found, "writes")
        with trio.fail_after(30):
            await producer.done.wait()
        topic = await found.there.topics.get(TOPIC, create=True)
        assert topic.idle
    assert not found.here.connections.sessions
