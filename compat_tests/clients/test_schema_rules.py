"""Which schemas are schemas, and which may follow which: our answers beside Apache's."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from compat_tests.apache.server import start_apache
from compat_tests.clients.schema_cases import DEFINITIONS, STEPS, Case
from compat_tests.clients.schema_pairs import Pairs
from compat_tests.missing import APACHE, skipped_without
from compat_tests.processes import ServerProcess

pytestmark = pytest.mark.java

STRATEGIES = (
    *("ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL"),
    *("BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"),
)
PAIRS = 200


class Side:
    """The schemas of one server."""

    def __init__(self, server: ServerProcess) -> None:
        self._url = f"{server.web_url}/admin/v2"
        self.run = uuid.uuid4().hex[:8]
        for strategy in STRATEGIES:
            self._call("PUT", f"namespaces/public/{strategy}")
            self._call("PUT", f"namespaces/public/{strategy}/schemaCompatibilityStrategy", strategy)

    def _call(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        request = urllib.request.Request(
            f"{self._url}/{path}",
            method=method,
            data=b"" if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode("utf-8", "replace")

    def post(self, strategy: str, topic: str, case: Case) -> int:
        """Status of registering: 200, 409 for incompatible, 422 for invalid ones."""
        path = f"schemas/public/{strategy}/{topic}-{self.run}/schema"
        kind, text, props = case
        return self._call("POST", path, {"type": kind, "schema": text, "properties": props})[0]

    def told(self, strategy: str, topic: str) -> list[object]:
        """All versions that are told of, without their times."""
        _, text = self._call("GET", f"schemas/public/{strategy}/{topic}-{self.run}/schemas")
        found = json.loads(text)["getSchemaResponses"]
        return [{key: each[key] for key in each if key != "timestamp"} for each in found]


class Both(NamedTuple):
    """Ours and Apache's."""

    ours: Side
    apache: Side


@pytest.fixture(scope="module")
def both(standalone: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with skipped_without(APACHE):
        apache = start_apache(tmp_path_factory.mktemp("apache") / "work", heap_mb=512)
    yield Both(Side(standalone), Side(apache))
    apache.kill()


def agree(ours: int, theirs: int) -> bool:
    """Whether two answers are the same. An Apache fails with 500 where it doesn't expect that a
    definition can't be read: all that is asked of ours there is to say something of sense.
    """
    return ours == theirs or (theirs == 500 and ours in (200, 409, 422))


def test_definitions(both: Both) -> None:
    differ: dict[str, object] = {}
    for number, (name, case) in enumerate(DEFINITIONS.items()):
        topic = f"d{number}"
        ours, theirs = (side.post("FULL", topic, case) for side in both)
        if not agree(ours, theirs):
            differ[name] = ours, theirs
        if ours == 200 == theirs and both.ours.told("FULL", topic) != both.apache.told(
            "FULL", topic
        ):
            differ[name] = both.ours.told("FULL", topic), both.apache.told("FULL", topic)
    assert not differ


def test_steps(both: Both) -> None:
    differ = {}
    for strategy in STRATEGIES:
        for number, (name, (old, new)) in enumerate(STEPS.items()):
            topic = f"s{number}"
            for case in (old, new):
                ours, theirs = (side.post(strategy, topic, case) for side in both)
                if not agree(ours, theirs):
                    differ[strategy, name] = ours, theirs
    assert not differ


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_random_pairs(both: Both, kind: str) -> None:
    pairs = Pairs(20_26 if kind == "AVRO" else 7)
    answers: set[tuple[int, ...]] = set()
    for number in range(PAIRS if kind == "AVRO" else PAIRS // 3):
        old, new = pairs.pair()
        strategy = STRATEGIES[2 + number % 6]
        seen = [
            tuple(side.post(strategy, f"{kind}{number}", (kind, text, {})) for text in (old, new))
            for side in both
        ]
        assert seen[0] == seen[1], f"{strategy}: {old} -> {new}"
        answers.add(seen[0])
    assert {(200, 200), (200, 409)} <= answers, "all the same: the pairs are no good"


def test_chains_are_compared_as_far_back_as_the_strategy_says(both: Both) -> None:
    pairs = Pairs(99)
    for number in range(8):
        chain = [text for _ in range(2) for text in pairs.pair()]
        for strategy in ("FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "BACKWARD"):
            seen = [
                [side.post(strategy, f"c{number}", ("AVRO", text, {})) for text in chain]
                for side in both
            ]
            assert seen[0] == seen[1], f"{strategy}: {chain}"
