"""Record the golden cases anew: ``python -m compat_tests.wire.record``.

Apache's Java client and the official Python client (C++ core) talk to Apache's broker through the
relay, one scenario after the other; of each scenario's frames the first few of every kind are kept.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from compat_tests.apache.jars import java_command
from compat_tests.apache.server import start_apache
from compat_tests.processes import ROOT, ServerProcess, free_port
from compat_tests.wire.relay import Recording, Relay, Side
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand

GOLDEN = Path(__file__).parent / "golden"
_SAME_KIND_MAX = 2
_FRAME_BYTES_MAX = 3000
_JAVA_SCENARIOS = (
    "exclusive",
    "failover",
    "key_shared",
    "batching",
    "nack",
    "cumulative_ack",
    "batch_index_ack",
    "ack_with_receipt",
    "redeliver_all",
    "properties_and_keys",
    "seek_by_id",
    "seek_by_time",
    "reader",
    "last_message_id",
    "partitioned",
    "non_persistent",
    "pattern",
    "access_exclusive",
    "access_wait",
    "access_fencing",
    "unsubscribe",
    "terminated_topic",
    "schema_string_json",
    "compression_lz4",
    "compression_zlib",
    "compression_zstd",
    "compression_snappy",
)
_PYTHON_CLIENT = """
import sys, pulsar
client = pulsar.Client(sys.argv[1], listener_name="recorded",
                       logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
topic = "persistent://public/default/golden-py"
consumer = client.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Shared,
                            negative_ack_redelivery_delay_ms=100)
for batching in (False, True):
    producer = client.create_producer(topic, batching_enabled=batching)
    for number in range(3):
        producer.send_async(b"m%d" % number, None, partition_key="k", properties={"a": "b"})
    producer.flush()
got = [consumer.receive(5000) for _ in range(6)]
consumer.negative_acknowledge(got.pop())
got.append(consumer.receive(5000))
for message in got:
    consumer.acknowledge(message)
reader = client.create_reader(topic, pulsar.MessageId.earliest)
while reader.has_message_available():
    reader.read_next(5000)
consumer.seek(pulsar.MessageId.earliest)
consumer.unsubscribe()
client.close()
"""


def main() -> None:
    """Write one JSON file per scenario into ``golden/``."""
    work = Path(tempfile.mkdtemp(prefix="golden-"))
    port = free_port()
    listeners = f"plain:pulsar://127.0.0.1:{port}"
    with Relay(("127.0.0.1", port)) as relay:
        host, relay_port = relay.address
        listeners += f",recorded:pulsar://{host}:{relay_port}"
        settings = {
            "acknowledgmentAtBatchIndexLevelEnabled": "true",
            "advertisedListeners": listeners,
            "internalListenerName": "plain",
            "advertisedAddress": "",
        }
        server = start_apache(work / "apache", settings=settings, broker_port=port)
        try:
            GOLDEN.mkdir(exist_ok=True)
            for name, command in _programs(server, f"pulsar://{host}:{relay_port}"):
                relay.recordings.clear()
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                if '"ok": false' in done.stdout:
                    sys.exit(f"{name}: {done.stdout}")
                _write(name, relay.recordings)
        finally:
            server.kill()
            shutil.rmtree(work)


def _programs(server: ServerProcess, url: str) -> Iterator[tuple[str, list[str]]]:
    for scenario in _JAVA_SCENARIOS:
        command = java_command("Exerciser", [url, server.web_url, scenario])
        command.insert(1, "-Dlistener=recorded")
        yield f"java_{scenario}", command
    yield "python_shared", [sys.executable, "-c", _PYTHON_CLIENT, url]


def _write(name: str, recordings: list[Recording]) -> None:
    seen: Counter[tuple[Side, str]] = Counter()
    kept = []
    for recording in recordings:
        for side, frame in recording.frames:
            size = int.from_bytes(frame[4:8], "big")
            kind = BaseCommand.Type.Name(BaseCommand.FromString(frame[8 : 8 + size]).type)
            seen[side, kind] += 1
            if seen[side, kind] <= _SAME_KIND_MAX and len(frame) <= _FRAME_BYTES_MAX:
                kept.append({"from": side, "command": kind, "hex": frame.hex()})
    path = GOLDEN / f"{name}.json"
    path.write_text(
        json.dumps({"recorded": "Apache Pulsar 4.0.7", "frames": kept}, indent=1) + "\n"
    )
    print(f"{path.relative_to(ROOT)}: {len(kept)} frames, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
