"""`geminga.pulsar` in the place of the official client's `pulsar`: the same programs say the same
(spec SDK-45).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pulsar
import pulsar.asyncio
import pytest

import geminga.pulsar
import geminga.pulsar.asyncio
import geminga.pulsar.exceptions
import geminga.pulsar.schema
from compat_tests.clients import dropin_async, dropin_errors, dropin_more, dropin_programs
from compat_tests.clients.conftest import WAIT_MS, Peer
from compat_tests.clients.dropin_world import World, until
from compat_tests.clients.test_encryption import keys as keys
from compat_tests.processes import ServerProcess
from geminga import errors
from geminga.pulsar._errors import official_error, result_of

Program = Callable[[World], None]


def programs() -> Iterator[Any]:
    for module in (dropin_programs, dropin_more, dropin_errors):
        for name, program in vars(module).items():
            if inspect.isfunction(program) and program.__module__ == module.__name__:
                yield pytest.param(program, id=name)


def said(module: ModuleType, program: Program, peer: Peer, keys: Path) -> list[object]:
    world = World(module, peer.server, keys)
    try:
        program(world)
    finally:
        # The official client's close raises this when it meets a producer that was fenced a moment
        # ago: see `peer`. That of ours is another class.
        with contextlib.suppress(pulsar.AlreadyClosed):
            world.client.close()
    return world.said


@pytest.mark.parametrize("program", list(programs()))
def test_same_program_says_the_same(program: Program, peer: Peer, keys: Path) -> None:
    official = said(pulsar, program, peer, keys)
    assert official, "a program that says nothing proves nothing"
    assert said(geminga.pulsar, program, peer, keys) == official


@pytest.mark.parametrize(
    "program", [dropin_async.sending_and_receiving, dropin_async.reading, dropin_async.closing]
)
def test_same_asyncio_program_says_the_same(program: Any, peer: Peer, keys: Path) -> None:
    said = []
    for module, face in ((pulsar, pulsar.asyncio), (geminga.pulsar, geminga.pulsar.asyncio)):
        world = World(module, peer.server, keys)
        asyncio.run(dropin_async.run(program, world, module, face))
        world.client.close()
        said.append(world.said)
    official, ours = said
    assert official, "a program that says nothing proves nothing"
    assert ours == official


def test_what_one_writes_the_other_reads(peer: Peer) -> None:
    topic = peer.topic("crosswise")
    own = geminga.pulsar.Client(peer.server.service_url)
    clients = {pulsar: peer.client, geminga.pulsar: own}
    for writing, reading in ((pulsar, geminga.pulsar), (geminga.pulsar, pulsar)):
        producer = clients[writing].create_producer(topic, batching_enabled=True)
        sent: list[Any] = []
        for number in range(10):
            producer.send_async(b"%d" % number, lambda _, place, sent=sent: sent.append(place))
        producer.flush()
        until(lambda sent=sent: len(sent) == 10)  # the official client's flush may be done before
        ids = [reading.MessageId.deserialize(place.serialize()) for place in sent]
        assert [place.serialize() for place in ids] == [place.serialize() for place in sent]
        assert [str(place) for place in ids] == [str(place) for place in sent]
        reader = clients[reading].create_reader(topic, ids[4])
        message = reader.read_next(WAIT_MS)
        assert message.data() == b"5"
        assert message.message_id().serialize() == sent[5].serialize()
        reader.close()
        producer.close()
    own.close()


def test_batch_of_bytes(peer: Peer) -> None:
    """A batch's payload, as other sources of entries have it, is split into its messages."""
    payload = b"".join(
        len(head).to_bytes(4, "big") + head + body
        for head, body in ((b"\x18\x01", b"a"), (b"\x12\x01k\x18\x02", b"bc"))
    )
    for module in (pulsar, geminga.pulsar):
        batch = module.MessageBatch().with_message_id(module.MessageId(-1, 5, 6, -1))
        messages = batch.parse_from(payload, 2)
        assert [message.data() for message in messages] == [b"a", b"bc"]
        assert [message.partition_key() for message in messages] == ["", "k"]
        assert [str(message.message_id()) for message in messages] == ["(5,6,-1,0)", "(5,6,-1,1)"]


def test_what_is_refused_says_what_to_do(standalone: ServerProcess) -> None:
    ours = geminga.pulsar
    client = ours.Client(standalone.service_url)
    reader = ours.CryptoKeyReader("none.pem", "none.pem")

    class Provider(ours.ServiceInfoProvider):
        def initial_service_info(self) -> ours.ServiceInfo:
            return ours.ServiceInfo(standalone.service_url)

        def initialize(self, on_service_info_update: object) -> None:
            pass

    refused: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (ours.OperationNotSupported, "use Auth", lambda: ours.AuthenticationAthenz("{}")),
        (ours.OperationNotSupported, "AutoClusterFailover", lambda: ours.Client(Provider())),
        (ours.InvalidConfiguration, "token", lambda: ours.Authentication("some.so", "a")),
        (ours.OperationNotSupported, "needs a topic", lambda: client.subscribe([], "s")),
        (
            ours.InvalidConfiguration,
            "needs a message_router",
            lambda: client.create_producer(
                "t", message_routing_mode=ours.PartitionsRoutingMode.CustomPartition
            ),
        ),
        (
            ours.InvalidConfiguration,
            "crypto_key_reader",
            lambda: client.create_producer("t", encryption_key="k"),
        ),
        (
            ours.CryptoError,
            "can't be read",
            lambda: client.create_producer("t", encryption_key="k", crypto_key_reader=reader),
        ),
    ]
    for kind, told, call in refused:
        with pytest.raises(kind, match=told):
            call()
    client.close()


def test_failover(standalone: ServerProcess) -> None:
    ours = geminga.pulsar
    clusters = [ours.ServiceInfo("pulsar://127.0.0.1:1"), ours.ServiceInfo(standalone.service_url)]
    client = ours.Client(ours.AutoClusterFailover(clusters[0], clusters[1:], check_interval_ms=100))
    assert client.create_producer("dropin-failover").send(b"there").entry_id() >= 0
    assert client.get_service_info().service_url == standalone.service_url
    client.close()


def test_callbacks_send_but_do_not_wait(standalone: ServerProcess) -> None:
    ours = geminga.pulsar
    client = ours.Client(standalone.service_url)
    producer = client.create_producer("dropin-callbacks")
    told: list[object] = []

    def again(result: object, _: object) -> None:
        told.append(result)
        if len(told) < 5:
            producer.send_async(b"more", again)

    def waits(result: object, _: object) -> None:
        try:
            producer.send(b"never")
        except ours.OperationNotSupported as error:
            told.append(str(error))

    producer.send_async(b"first", again)
    until(lambda: len(told) == 5)
    assert set(told) == {ours.Result.Ok}
    producer.send_async(b"", waits)
    until(lambda: len(told) == 6)
    assert "must not wait" in str(told[5])
    client.close()


def test_a_logger_gets_the_log() -> None:
    ours = geminga.pulsar
    heard: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    logger = logging.getLogger("the-program")
    logger.addHandler(Handler())
    client = ours.Client("pulsar://127.0.0.1:1", operation_timeout_seconds=1, logger=logger)
    with pytest.raises(ours.ConnectError):
        client.create_producer("t")
    client.close()
    assert any("trying again" in line for line in heard)
    before = len(heard)
    logging.getLogger("geminga").warning("after the close")
    assert len(heard) == before


def test_every_error_is_one_of_theirs() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.GemingaError)
    ]
    assert len(kinds) > 40
    for kind in kinds:
        made = official_error(kind("why"))
        assert isinstance(made, geminga.pulsar.PulsarException)
        assert type(made).__name__ == result_of(kind("why")).name
        assert "why" in str(made)
    results = {each.name for each in geminga.pulsar.Result} - {"Ok"}
    names = set(geminga.pulsar.exceptions.__all__) - {"PulsarException"}
    assert results == names


LEFT_OUT = {
    "Context": "functions run in Apache's workers, which bring the official client",
    "Function": "functions",
    "IdentitySerDe": "functions",
    "PickleSerDe": "functions",
    "SerDe": "functions",
    "Callable": "of the module typing",
    "List": "of the module typing",
    "Optional": "of the module typing",
    "Tuple": "of the module typing",
    "Union": "of the module typing",
    "timedelta": "of the module datetime",
}
MODULES = {
    pulsar: geminga.pulsar,
    pulsar.asyncio: geminga.pulsar.asyncio,
    pulsar.exceptions: geminga.pulsar.exceptions,
    pulsar.schema: geminga.pulsar.schema,
}


def public(owner: object) -> dict[str, Any]:
    return {name: value for name, value in vars(owner).items() if name[0] != "_"}


def told(function: Any) -> list[tuple[str, str]]:
    """Names and defaults of a function's parameters."""
    return [
        (each.name, str(each.default)) for each in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize("official", MODULES, ids=lambda module: module.__name__)
def test_every_name_is_there(official: ModuleType) -> None:
    ours = MODULES[official]
    missing = {
        name
        for name, value in public(official).items()
        if not hasattr(ours, name) and not inspect.ismodule(value)
    }
    assert missing - LEFT_OUT.keys() == set()
    assert {name for name in LEFT_OUT if hasattr(geminga.pulsar, name)} == set()


@pytest.mark.parametrize("official", MODULES, ids=lambda module: module.__name__)
def test_every_signature_is_the_same(official: ModuleType) -> None:
    compared = 0
    for name, value in public(official).items():
        if not inspect.isclass(value) or name in LEFT_OUT or hasattr(value, "__members__"):
            continue
        ours = getattr(MODULES[official], name)
        for member, theirs in {**public(value), "__init__": value.__init__}.items():
            if member not in public(ours) and member != "__init__":
                assert hasattr(ours, member), f"{name}.{member}"
            if not inspect.isfunction(theirs) or (name, member) in OTHER_SIGNATURES:
                continue
            assert told(getattr(ours, member)) == told(theirs), f"{name}.{member}"
            compared += 1
    assert compared or official is pulsar.exceptions


OTHER_SIGNATURES = {
    ("EncryptionKey", "__init__"): "made by the client",
}
