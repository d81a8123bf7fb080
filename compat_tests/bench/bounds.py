"""What clients reach on a broker that does nothing: ``python -m compat_tests.bench.bounds``.

The broker stores nothing: receipts leave at once, and entries that were never written are sent as
long as there are permits. So a row that compares clients, or one client on two brokers, can't give
more than is printed here, however fast our broker becomes. Each load by turns, medians of `--runs`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

from compat_tests.bench.side import run_program
from geminga_protocol.encode import MessageHeader, frame, send_receipt
from geminga_protocol.frames import FrameReader
from geminga_protocol.payload import build
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    MessageMetadata,
)

SIZE_BYTES = 1024
FRAMES_AT_ONCE = 500
LEDGER_ID = 7
_Kind = BaseCommand.Type


class Connection:
    """Answers one client's commands."""

    def __init__(self, link: socket.socket, url: str) -> None:
        self._link = link
        self._url = url
        self._reader = FrameReader()
        self._stored = 0
        self._sent = 0
        self._header = MessageHeader(0, -1)
        metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
        self._entry = build(metadata, os.urandom(SIZE_BYTES))

    def run(self) -> None:
        """Until the client leaves."""
        with self._link, contextlib.suppress(ConnectionError):
            self._serve()

    def _serve(self) -> None:
        while data := self._link.recv(1 << 20):
            answers: list[bytes] = []
            for found in self._reader.feed(data):
                answers += self._answers(found.command)
            if answers:
                self._link.sendall(b"".join(answers))

    def _answers(self, command: BaseCommand) -> Iterator[bytes]:
        if command.type == _Kind.SEND:
            sent = command.send
            yield send_receipt(sent.producer_id, sent.sequence_id, LEDGER_ID, self._stored)
            self._stored += 1
        elif command.type == _Kind.FLOW:
            self._deliver(command.flow.messagePermits)
        else:
            found = self._answer(command)
            if found is not None:
                yield frame(found)

    def _answer(self, command: BaseCommand) -> BaseCommand | None:
        made = BaseCommand()
        match command.type:
            case _Kind.CONNECT:
                made.type = _Kind.CONNECTED
                made.connected.server_version = "none"
                made.connected.protocol_version = command.connect.protocol_version
                made.connected.max_message_size = 5 << 20
            case _Kind.PARTITIONED_METADATA:
                made.type = _Kind.PARTITIONED_METADATA_RESPONSE
                told = made.partitionMetadataResponse
                told.request_id = command.partitionMetadata.request_id
                told.response = CommandPartitionedTopicMetadataResponse.Success
            case _Kind.LOOKUP:
                made.type = _Kind.LOOKUP_RESPONSE
                where = made.lookupTopicResponse
                where.request_id = command.lookupTopic.request_id
                where.brokerServiceUrl = self._url
                where.response = CommandLookupTopicResponse.Connect
                where.authoritative = True
            case _Kind.PRODUCER:
                made.type = _Kind.PRODUCER_SUCCESS
                made.producer_success.request_id = command.producer.request_id
                made.producer_success.producer_name = "p"
            case _Kind.SUBSCRIBE:
                self._header = MessageHeader(command.subscribe.consumer_id, -1)
                made.type = _Kind.SUCCESS
                made.success.request_id = command.subscribe.request_id
            case _Kind.CLOSE_PRODUCER:
                made.type = _Kind.SUCCESS
                made.success.request_id = command.close_producer.request_id
            case _Kind.CLOSE_CONSUMER:
                made.type = _Kind.SUCCESS
                made.success.request_id = command.close_consumer.request_id
            case _Kind.PING:
                made.type = _Kind.PONG
                made.pong.SetInParent()
            case _:
                return None
        return made

    def _deliver(self, permits: int) -> None:
        entry = self._entry
        size = len(entry)
        plain = self._header.plain
        end = self._sent + permits
        while self._sent < end:
            upto = min(self._sent + FRAMES_AT_ONCE, end)
            fronts = [plain(LEDGER_ID, number, size) for number in range(self._sent, upto)]
            self._link.sendall(entry.join([*fronts, b""]))
            self._sent = upto


def serve() -> None:
    """Print the URL, and serve until killed."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"pulsar://127.0.0.1:{listening.getsockname()[1]}"
        print(url, flush=True)
        while True:
            link, _ = listening.accept()
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=Connection(link, url).run, daemon=True).start()


Load = tuple[str, str, Sequence[str]]
"""What it is called, the load program, and its arguments."""


def loads(scale: float) -> list[Load]:
    """The loads of the rows that clients bound; `scale` 1 takes a second or more each."""

    def count(full: int) -> str:
        return f"--count={max(1000, int(full * scale))}"

    sdk, official = "sdk_load", "sdk_official"
    callbacks = ["produce", count(100_000), "--batching=1", "--callbacks=1"]
    return [
        ("official client, callbacks, batched", "python_load", callbacks),
        ("official client, fire and forget", official, ["forget", count(400_000)]),
        ("our SDK, fire and forget", sdk, ["forget", "--face=trio", count(800_000)]),
        ("official client, single entries received", official, ["consume", count(300_000)]),
        ("our SDK, single entries received", sdk, ["consume", "--face=trio", count(300_000)]),
    ]


def measure(runs: int, scale: float) -> dict[str, float]:
    """Messages a second of each load."""
    command = [sys.executable, "-m", "compat_tests.bench.bounds", "--serve"]
    found: dict[str, list[float]] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            for run in range(runs):
                for name, module, arguments in loads(scale):
                    topic = f"persistent://public/default/{run}"
                    program = [sys.executable, "-m", f"compat_tests.bench.{module}", *arguments]
                    figures = run_program([*program, f"--url={url}", f"--topic={topic}"])
                    per_s = figures.get("per_s") or figures["publish_per_s"]
                    found.setdefault(name, []).append(per_s)
        finally:
            server.kill()
    return {name: statistics.median(rates) for name, rates in found.items()}


def main() -> int:
    """Serve, or measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m compat_tests.bench.bounds", description=__doc__
    )
    parser.add_argument("--serve", action="store_true", help="be the broker, and print its URL")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the loads' lengths")
    options = parser.parse_args()
    if options.serve:
        serve()
    for name, per_s in measure(options.runs, options.scale).items():
        print(f"{name:42} {per_s:10.0f} msg/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
