"""End-to-end encryption in the faces: their ways of sending and receiving are their own."""

from __future__ import annotations

import asyncio

import pytest

import geminga
import geminga.aio as ga
import geminga.blocking as gb
from geminga._tests.crypto_keys import READER
from geminga.options import ProducerKeywords

SECRETS = [f"secret {n}".encode() for n in range(300)]


@pytest.mark.parametrize("options", [{}, {"batching_enabled": False}])
def test_blocking(url: str, topic: str, options: ProducerKeywords) -> None:
    with (
        gb.connect(url) as client,
        client.subscribe(topic, "s", crypto_key_reader=READER) as consumer,
        client.subscribe(
            topic, "raw", crypto_failure_action=gb.ConsumerCryptoFailureAction.CONSUME
        ) as raw,
        client.create_producer(
            topic, encryption_keys=["ec"], crypto_key_reader=READER, **options
        ) as producer,
    ):
        for secret in SECRETS:
            producer.submit(secret)
        producer.send(b"last", partition_key="k")
        assert [consumer.receive(60).data for _ in SECRETS] == SECRETS
        message = consumer.receive(60)
        assert message.data == b"last"
        assert message.encryption_context is not None
        assert b"secret" not in raw.receive(60).data
        with client.create_table_view(topic, crypto_key_reader=READER) as view:
            assert view.get("k") == b"last"
        with pytest.raises(gb.CryptoError, match="no public key 'gone'"):
            client.create_producer(topic, encryption_keys=["gone"], crypto_key_reader=READER)


async def exchange(url: str, topic: str) -> None:
    async with (
        ga.connect(url) as client,
        await client.subscribe(topic, "s", crypto_key_reader=READER) as consumer,
        await client.create_producer(
            topic, encryption_keys=["rsa"], crypto_key_reader=READER
        ) as producer,
    ):
        for secret in SECRETS:
            await producer.submit(secret)
        assert [(await consumer.receive(60)).data for _ in SECRETS] == SECRETS
        async with await client.create_reader(
            topic, geminga.EARLIEST, crypto_key_reader=READER
        ) as reader:
            assert (await reader.read_next(60)).data == SECRETS[0]


def test_aio(url: str, topic: str) -> None:
    asyncio.run(exchange(url, topic))
