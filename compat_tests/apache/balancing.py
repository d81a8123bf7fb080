"""Loads for Apache's classes of load balancing, and what they say (`java/Balancing.java`)."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from compat_tests.apache.jars import jars, run_java
from compat_tests.missing import APACHE, skipped_without
from geminga_broker.loadbalance import settings
from geminga_broker.loadbalance._tests.samples import bundle, load_of, report, stats
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.reports import encode_report
from geminga_broker.loadbalance.sheds import Shed

Question = Mapping[str, object]
CASES = 80
"""Of each kind."""


def ask(questions: Sequence[Question]) -> list[object]:
    """What Apache's classes say to each question."""
    with skipped_without(APACHE):
        jars()
    asked = "".join(json.dumps(question) + "\n" for question in questions)
    said = run_java("Balancing", [], heap_mb=512, stdin=asked)
    answers = [json.loads(line) for line in said.splitlines()]
    assert len(answers) == len(questions), said
    return answers


def load_json(load: LoadData) -> dict[str, object]:
    """The load as Apache's LoadData is made of it."""
    return {
        "brokers": {
            broker_id: {
                "report": json.loads(encode_report(broker.report)),
                "chosen": list(broker.preallocated),
            }
            for broker_id, broker in load.brokers.items()
        },
        "bundles": {name: msgspec.to_builtins(data) for name, data in load.bundles.items()},
        "unloaded": list(load.unloaded),
    }


def greedy(sheds: Sequence[Shed]) -> dict[str, list[str]]:
    """The bundles of each broker that go if there is room for all of them elsewhere."""
    found: dict[str, list[str]] = {}
    for shed in sheds:
        gone = 0.0
        for name, traffic in shed.bundles:
            if gone >= shed.wanted and found.get(shed.source):
                break
            gone += traffic
            found.setdefault(shed.source, []).append(name)
    return found


def agree(ours: Sequence[object], theirs: Sequence[object]) -> None:
    """Fails with the first difference: the answers are too long to be compared by pytest."""
    assert len(ours) == len(theirs)
    for at, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine != other:
            pytest.fail(f"case {at}: ours {str(mine)[:2000]}, Apache's {str(other)[:2000]}")


def drawn_load(chance: random.Random, *, used: tuple[int, int] = (5, 99)) -> LoadData:
    """Three to eight brokers with bundles of a few namespaces, some of which were just moved.

    Their uses are a point apart or more, as Apache's AvgShedder takes less for the same, and never
    whole points: at a threshold itself the rounding of floats would decide.
    """
    reports = {}
    parts = sorted(chance.random() for _ in range(8))
    whole = sorted(chance.sample(range(*used), 8))
    cpus = [cpu + part for cpu, part in zip(whole, parts, strict=True)]
    chance.shuffle(cpus)
    names = [bundle(f"t/n{at % 3}", at) for at in range(200)]
    chance.shuffle(names)
    for at in range(chance.randint(3, 8)):
        count = chance.choice((0, 1, 2, 5, 12))
        held = {
            names.pop(): stats(
                chance.uniform(0, 2e4),
                chance.uniform(0, 80),
                topics=chance.randint(0, 4) * chance.choice((1, 400)),
                sessions=chance.randint(0, 1500),
            )
            for _ in range(count)
        }
        reports[f"b{at}:80{at}"] = report(
            held,
            cpu=cpus.pop(),
            persistent=chance.random() < 0.9,
            non_persistent=chance.random() < 0.9,
            version=chance.choice(("4.0.7", "4.0.7", "4.1.0", "4.1.0-rc1")),
            manager=chance.choice((settings.MODULAR, settings.MODULAR, settings.SIMPLE)),
        )
    load = load_of(reports)
    for broker_id in list(load.brokers):
        if chance.random() < 0.3:
            load.preallocate(names.pop(), broker_id, 0)
    for name in list(load.bundles):
        if chance.random() < 0.1:
            load.unloaded[name] = 0.0
    return load
