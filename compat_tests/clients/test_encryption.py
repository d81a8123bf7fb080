"""End-to-end encryption crosswise: our SDK, the official Python (C++) client and the Java client
write and read each other's messages, on both servers. The C++ client has RSA only.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pulsar
import pytest
import trio
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

import geminga
from compat_tests.apache import jars
from compat_tests.clients.conftest import WAIT_MS, Peer, take_by_turns
from compat_tests.missing import JAVA_CLIENT, skipped_without
from geminga import CompressionType, ConsumerCryptoFailureAction, InitialPosition
from geminga.cli.client import client as tool_group
from geminga.options import ProducerKeywords

MESSAGES = 5
FORMS: dict[str, ProducerKeywords] = {
    "plain": {"batching_enabled": False},
    "batched": {"batching_max_publish_delay_s": 0.1},
    "compressed": {"compression_type": CompressionType.LZ4},
    "chunked": {
        "batching_enabled": False,
        "chunking_enabled": True,
        "chunk_max_message_size_bytes": 100_000,
    },
}
OFFICIAL_FORMS = {
    "plain": {"batching_enabled": False},
    "batched": {"batching_enabled": True, "batching_max_publish_delay_ms": 100},
    "compressed": {"batching_enabled": True, "compression_type": pulsar.CompressionType.LZ4},
    # The C++ client cuts at the broker's limit only.
    "chunked": {"batching_enabled": False, "chunking_enabled": True},
}
KEYS = ["rsa", "ec", "rsa+ec"]
"""Several are joined by +; what was written with several is read by the last of them."""


def payload(form: str, number: int, size: int | None = None) -> bytes:
    """The same bytes as the Java program has."""
    size = size or (350_000 if form == "chunked" else 300)
    period = bytes((i * 7 + number) % 251 for i in range(251))
    return (period * (size // 251 + 1))[:size]


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with NAME-public.pem and NAME-private.pem."""
    folder = tmp_path_factory.mktemp("keys")
    made: dict[str, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey] = {
        "rsa": rsa.generate_private_key(65537, 2048),
        "ec": ec.generate_private_key(ec.SECP256R1()),
        "other": ec.generate_private_key(ec.SECP256R1()),
    }
    pem = serialization.Encoding.PEM
    for name, key in made.items():
        private = key.private_bytes(
            pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        spki = serialization.PublicFormat.SubjectPublicKeyInfo
        (folder / f"{name}-private.pem").write_bytes(private)
        (folder / f"{name}-public.pem").write_bytes(key.public_key().public_bytes(pem, spki))
    return folder


def reader(folder: Path, names: str) -> geminga.DefaultCryptoKeyReader:
    """All public keys, and the last one's private key."""
    each = names.split("+")
    return geminga.DefaultCryptoKeyReader(
        public_keys={name: folder / f"{name}-public.pem" for name in each},
        private_keys={each[-1]: (folder / f"{each[-1]}-private.pem").as_uri()},
    )


@pytest.fixture
async def ours(peer: Peer) -> AsyncIterator[geminga.Client]:
    """Our client on the server under test."""
    async with geminga.connect(peer.server.service_url) as client:
        with trio.fail_after(280):
            yield client


async def write(client: geminga.Client, topic: str, folder: Path, names: str, form: str) -> None:
    async with await client.create_producer(
        topic,
        encryption_keys=names.split("+"),
        crypto_key_reader=reader(folder, names),
        **FORMS[form],
    ) as producer:
        for n in range(MESSAGES):
            await producer.submit(payload(form, n), partition_key="key", properties={"n": str(n)})


async def read(
    client: geminga.Client,
    topic: str,
    folder: Path,
    names: str,
    expected: list[bytes],
) -> None:
    async with await client.subscribe(
        topic,
        "ours",
        initial_position=InitialPosition.EARLIEST,
        crypto_key_reader=reader(folder, names),
    ) as consumer:
        for n, data in enumerate(expected):
            message = await consumer.receive(60)
            assert message.data == data
            assert message.properties == {"n": str(n)}
            context = message.encryption_context
            assert context is not None
            assert sorted(context.keys) == sorted(names.split("+"))
            await consumer.acknowledge(message)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("names", ["rsa", "ec+rsa"])
async def test_ours_to_the_official_client(
    peer: Peer, ours: geminga.Client, keys: Path, names: str, form: str
) -> None:
    topic = peer.topic("enc")
    await write(ours, topic, keys, names, form)

    def official() -> None:
        crypto = pulsar.CryptoKeyReader(f"{keys}/rsa-public.pem", f"{keys}/rsa-private.pem")
        consumer = peer.consumer(topic, crypto_key_reader=crypto)
        for n in range(MESSAGES):
            message = consumer.receive(WAIT_MS)
            assert message.data() == payload(form, n)
            assert message.properties() == {"n": str(n)}
            consumer.acknowledge(message)

    await trio.to_thread.run_sync(official)


@pytest.mark.parametrize("form", FORMS)
async def test_the_official_client_to_ours(
    peer: Peer, ours: geminga.Client, keys: Path, form: str
) -> None:
    topic = peer.topic("enc")
    size = 6_000_000 if form == "chunked" else 300
    sent = [payload(form, n, size) for n in range(MESSAGES)]

    def official() -> None:
        crypto = pulsar.CryptoKeyReader(f"{keys}/rsa-public.pem", f"{keys}/rsa-private.pem")
        producer = peer.producer(
            topic, encryption_key="rsa", crypto_key_reader=crypto, **OFFICIAL_FORMS[form]
        )
        for n, data in enumerate(sent):
            producer.send_async(data, None, properties={"n": str(n)})
        producer.flush()

    await trio.to_thread.run_sync(official)
    await read(ours, topic, keys, "rsa", sent)


@pytest.mark.java
async def test_the_java_client_and_ours(peer: Peer, ours: geminga.Client, keys: Path) -> None:
    """One run of the program reads what we wrote, then writes what we read."""
    arguments = [peer.server.service_url, str(keys)]
    theirs: list[tuple[str, str, str]] = []
    for names in KEYS:
        for form in FORMS:
            topic = peer.topic(f"enc-ours-{names.replace('+', '-')}-{form}")
            await write(ours, topic, keys, names, form)
            arguments += ["read", names, form, topic]
            topic = peer.topic(f"enc-java-{names.replace('+', '-')}-{form}")
            arguments += ["write", names, form, topic]
            theirs.append((names, form, topic))
    with skipped_without(JAVA_CLIENT):
        command = jars.java_command("Encryption", arguments)

    def java() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)

    done = await trio.to_thread.run_sync(java)
    assert "done" in done.stdout, done.stderr[-3000:]
    for names, form, topic in theirs:
        await read(ours, topic, keys, names, [payload(form, n) for n in range(MESSAGES)])


async def test_a_namespace_that_requires_encryption(
    peer: Peer, ours: geminga.Client, keys: Path
) -> None:
    tenant = f"enc{uuid.uuid4().hex[:8]}"
    namespace = f"{tenant}/app"
    peer.admin("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"]})
    peer.admin("PUT", f"namespaces/{namespace}")
    peer.admin("POST", f"namespaces/{namespace}/encryptionRequired", True)
    topic = f"persistent://{namespace}/t"
    with pytest.raises(geminga.MetadataError, match="ncryption is required"):
        async with geminga.connect(peer.server.service_url, operation_timeout_s=5) as client:
            await client.create_producer(topic)
    await write(ours, topic, keys, "ec", "batched")
    await read(ours, topic, keys, "ec", [payload("batched", n) for n in range(MESSAGES)])
    # Encrypted in name only: the server looks at each message.
    async with await ours.create_producer(
        topic,
        encryption_keys=["gone"],
        crypto_key_reader=geminga.DefaultCryptoKeyReader(),
        crypto_failure_action=geminga.ProducerCryptoFailureAction.SEND,
        send_timeout_s=2,
    ) as producer:
        with pytest.raises((geminga.BrokerError, geminga.OperationTimeoutError)):
            await producer.send(b"plain")


def test_the_tool(peer: Peer, keys: Path) -> None:
    """What it writes is for the official client, and the other way."""
    topic = peer.topic("enc")
    crypto = pulsar.CryptoKeyReader(f"{keys}/rsa-public.pem", f"{keys}/rsa-private.pem")
    consumer = peer.consumer(topic, crypto_key_reader=crypto)
    tool = ["--url", peer.server.service_url]
    public, private = f"file://{keys}/rsa-public.pem", f"{keys}/rsa-private.pem"
    options = ["produce", topic, "-m", "a,b", "-ekn", "rsa", "-ekv", public]
    done = CliRunner().invoke(tool_group, [*tool, *options])
    assert done.exit_code == 0, done.output
    assert [consumer.receive(WAIT_MS).data() for _ in range(2)] == [b"a", b"b"]
    options = ["consume", topic, "-s", "tool", "-p", "Earliest", "-n", "2", "-ekv", private]
    done = CliRunner().invoke(tool_group, [*tool, *options])
    assert done.exit_code == 0, done.output
    assert [line[-9:] for line in done.output.splitlines() if "content" in line] == [
        "content:a",
        "content:b",
    ]


async def test_batches_by_key_stay_together(peer: Peer, ours: geminga.Client, keys: Path) -> None:
    """Key_Shared goes by the entry's metadata, which aren't encrypted."""
    topic = peer.topic("enc")
    consumers = [
        await ours.subscribe(
            topic,
            "s",
            consumer_type=geminga.ConsumerType.KEY_SHARED,
            crypto_key_reader=reader(keys, "ec"),
        )
        for _ in range(2)
    ]
    async with await ours.create_producer(
        topic,
        encryption_keys=["ec"],
        crypto_key_reader=reader(keys, "ec"),
        batching_type=geminga.BatchingType.KEY_BASED,
    ) as producer:
        for n in range(200):
            await producer.submit(b"%d" % n, partition_key=f"k{n % 20}")
    got = await take_by_turns(consumers, 200)
    names = [{message.partition_key for message in messages} for messages in got]
    assert all(names)
    assert not names[0] & names[1]
    assert sorted(int(message.data) for messages in got for message in messages) == [*range(200)]


@pytest.mark.parametrize("form", ["batched", "chunked"])
async def test_without_a_key(peer: Peer, ours: geminga.Client, keys: Path, form: str) -> None:
    """CONSUME hands out what the server has, DISCARD acknowledges it; permits are as the server
    counts them, so what follows still comes.
    """
    topic = peer.topic("enc")
    consume = await ours.subscribe(
        topic,
        "consume",
        receiver_queue_size=1,
        crypto_failure_action=ConsumerCryptoFailureAction.CONSUME,
    )
    discard = await ours.subscribe(
        topic,
        "discard",
        receiver_queue_size=1,
        crypto_failure_action=ConsumerCryptoFailureAction.DISCARD,
    )
    for _ in range(3):
        await write(ours, topic, keys, "ec", form)
    async with await ours.create_producer(topic) as producer:
        await producer.send(b"plain")
    got = []
    while True:
        message = await consume.receive(60)
        await consume.acknowledge(message)
        if message.encryption_context is None:
            break
        assert message.encryption_context.is_encrypted
        got.append(message.encryption_context.batch_size)
    assert message.data == b"plain"
    if form == "batched":
        assert sum(n or 1 for n in got) == 3 * MESSAGES
    else:
        assert got == [None] * 4 * 3 * MESSAGES
    message = await discard.receive(60)
    assert message.data == b"plain"
    await discard.acknowledge(message)
    await discard.aclose()
    async with await ours.subscribe(topic, "discard") as again:
        with pytest.raises(geminga.OperationTimeoutError):
            await again.receive(0.5)
