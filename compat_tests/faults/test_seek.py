"""kill -9 right after a seek, a reset or a skip was answered: it holds."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from collections.abc import Callable
from typing import NamedTuple

from compat_tests.faults.conftest import SETTINGS, TOPIC, Starter
from compat_tests.processes import ServerProcess
from compat_tests.wire.raw import RawClient
from geminga_protocol import ack_set, encode, payload
from geminga_protocol._tests.rounds import rounds
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, CommandSubscribe, MessageMetadata

KINDS = (
    CommandSubscribe.Exclusive,
    CommandSubscribe.Failover,
    CommandSubscribe.Shared,
    CommandSubscribe.Key_Shared,
)
KILLS = rounds(16)
ENTRIES = 40
BATCH = 4
SUBSCRIPTION = "/admin/v2/persistent/public/default/faults/subscription/"

Position = tuple[int, int]


class Entry(NamedTuple):
    """A stored batch."""

    position: Position
    time_ms: int


class Place(NamedTuple):
    """Where a subscription must go on: the first entry, and the first message in it."""

    entry: int
    message: int = 0


def test_what_was_answered_holds_after_a_kill(start: Starter) -> None:
    chance = random.Random(7)
    settings = {
        **SETTINGS,
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
        "managedLedgerMaxEntriesPerLedger": "7",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    }
    server = start(settings=settings)
    entries = _publish(server)
    for number in range(KILLS):
        kind, name = KINDS[number % len(KINDS)], f"s{number}"
        with RawClient(server.address) as client:
            client.subscribe(TOPIC, name, kind=kind)
            client.flow(chance.randrange(1, ENTRIES * BATCH))
            for _ in range(chance.randrange(3)):
                _acknowledge(client, client.next_message()[0])
            way = (number + number // len(KINDS)) % len(MOVES)
            place = MOVES[way](server, client, name, entries, chance)
            server.kill()
        server = start(settings=settings)
        with RawClient(server.address) as client:
            client.subscribe(TOPIC, name, kind=kind)
            client.flow(1)
            frame = client.wait_for(BaseCommand.MESSAGE).command.message
            found = Place(
                [entry.position for entry in entries].index(
                    (frame.message_id.ledgerId, frame.message_id.entryId)
                ),
                next(ack_set.indexes(frame.ack_set), 0),
            )
        assert found == place, f"move {way}, type {kind}"


def _publish(server: ServerProcess) -> list[Entry]:
    entries: list[Entry] = []
    first_ms = int(time.time() * 1000) - ENTRIES
    with RawClient(server.address) as client:
        client.subscribe(TOPIC, "holder", consumer_id=2)
        client.producer(TOPIC)
        for number in range(ENTRIES):
            metadata = MessageMetadata(
                producer_name="raw",
                sequence_id=number,
                publish_time=first_ms + number,  # each has its own
                num_messages_in_batch=BATCH,
            )
            rest = payload.build(metadata, b"%d" % number)
            client.send_bytes(encode.send(1, number, BATCH, len(rest)) + rest)
            place = client.wait_for(BaseCommand.SEND_RECEIPT).command.send_receipt.message_id
            entries.append(Entry((place.ledgerId, place.entryId), metadata.publish_time))
    return entries


def _acknowledge(client: RawClient, position: Position) -> None:
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id = 1
    command.ack.ack_type = command.ack.Individual
    command.ack.message_id.add(ledgerId=position[0], entryId=position[1])
    client.send(command)


def _seek(client: RawClient, command: BaseCommand) -> None:
    command.type = BaseCommand.SEEK
    command.seek.consumer_id = 1
    command.seek.request_id = client.request_id()
    client.send(command)
    client.wait_for(
        BaseCommand.SUCCESS, accept=lambda it: it.success.request_id == command.seek.request_id
    )


def _post(server: ServerProcess, name: str, path: str, body: object = None) -> None:
    request = urllib.request.Request(
        server.web_url + SUBSCRIPTION + name + path,
        method="POST",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 204


def _by_id(
    _: ServerProcess, client: RawClient, name: str, entries: list[Entry], chance: random.Random
) -> Place:
    place = Place(chance.randrange(ENTRIES), chance.randrange(1, BATCH))
    command = BaseCommand()
    ledger_id, entry_id = entries[place.entry].position
    command.seek.message_id.ledgerId, command.seek.message_id.entryId = ledger_id, entry_id
    left = sum(1 << index for index in range(place.message, BATCH))
    command.seek.message_id.ack_set.extend(ack_set.from_bits(left))
    _seek(client, command)
    return place


def _by_time(
    _: ServerProcess, client: RawClient, name: str, entries: list[Entry], chance: random.Random
) -> Place:
    place = Place(chance.randrange(ENTRIES))
    command = BaseCommand()
    command.seek.message_publish_time = entries[place.entry].time_ms
    _seek(client, command)
    return place


def _by_reset(
    server: ServerProcess, _: RawClient, name: str, entries: list[Entry], chance: random.Random
) -> Place:
    place = Place(chance.randrange(ENTRIES))
    ledger_id, entry_id = entries[place.entry].position
    _post(server, name, "/resetcursor", {"ledgerId": ledger_id, "entryId": entry_id})
    return place


def _by_skip(
    server: ServerProcess, client: RawClient, name: str, entries: list[Entry], chance: random.Random
) -> Place:
    first = BaseCommand()
    ledger_id, entry_id = entries[0].position
    first.seek.message_id.ledgerId, first.seek.message_id.entryId = ledger_id, entry_id
    _seek(client, first)
    place = Place(chance.randrange(1, ENTRIES))
    _post(server, name, f"/skip/{place.entry}")
    return place


Move = Callable[[ServerProcess, RawClient, str, list[Entry], random.Random], Place]
MOVES: tuple[Move, ...] = (_by_id, _by_time, _by_reset, _by_skip)
