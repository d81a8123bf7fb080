"""Where ledgers are placed, judged by Apache's policies: racks, regions and isolation groups of
some hundred drawn clusters, in the node `/bookies` as Pulsar's tools write it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from compat_tests.apache.jars import jars, run_java
from compat_tests.missing import BOOKIE, skipped_without
from geminga_bookie.client.api import DigestType, LedgerMetadata, LedgerState
from geminga_bookie.client.placement import change_ensemble, choose_ensemble
from geminga_bookie.client.placement_rules import (
    POLICY_KEY,
    Isolation,
    PlacementOptions,
    PlacementRules,
    isolation_policy,
)
from geminga_bookie.errors import NotEnoughBookies
from geminga_bookie.racks import parse_racks

pytestmark = pytest.mark.java

CASES = 120
"""Of each kind."""


@dataclass
class Case:
    """A cluster and a ledger."""

    kind: Literal["rack", "region", "isolated"]
    sizes: tuple[int, int, int]
    options: PlacementOptions
    nodes: dict[str, dict[str, dict[str, str]]]
    writable: list[str]
    own_policy: str = ""
    ensembles: list[Sequence[str]] = field(default_factory=list)
    everybody: list[str] = field(default_factory=list)
    has_replacement: bool = False

    @property
    def rules(self) -> PlacementRules:
        racks = parse_racks(json.dumps(self.nodes).encode(), lambda each: each.partition(":")[0])
        return PlacementRules(self.options, racks.by_bookie, racks.groups)

    @property
    def metadata(self) -> dict[str, bytes]:
        return {POLICY_KEY: self.own_policy.encode()} if self.own_policy else {}

    def choose(self) -> list[str]:
        ensemble, write, ack = self.sizes
        return choose_ensemble(
            self.writable,
            ensemble,
            7,
            write_quorum=write,
            ack_quorum=ack,
            custom_metadata=self.metadata,
            rules=self.rules,
        )

    def line(self) -> str:
        options = self.options
        settings = {
            "minNumRacksPerWriteQuorum": str(options.min_racks),
            "enforceMinNumRacksPerWriteQuorum": str(options.enforce_racks).lower(),
        }
        if options.regions:
            settings["reppRegionsToWrite"] = "+".join(sorted(options.regions))
            settings["reppMinimumRegionsForDurability"] = str(options.min_regions)
        if self.kind == "isolated":
            settings["isolationBookieGroups"] = ",".join(options.isolation.primary)
            settings["secondaryIsolationBookieGroups"] = ",".join(options.isolation.secondary)
        last = [self.own_policy] if self.kind == "isolated" else map(",".join, self.ensembles)
        return "\t".join(
            [
                self.kind,
                ",".join(map(str, self.sizes)),
                ";".join(f"{name}={value}" for name, value in settings.items()),
                json.dumps(self.nodes),
                ",".join(self.writable),
                *last,
            ]
        )


def ask(folder: Path, cases: Sequence[Case]) -> list[list[str]]:
    """What Apache's policies say."""
    with skipped_without(BOOKIE):
        jars()
    # Names of loopback addresses, which a resolver may look for in vain for seconds.
    hosts = folder / "hosts"
    hosts.write_text("".join(f"127.0.0.{n} bookie-{n}\n" for n in range(1, 20)))
    flags = [f"-Djdk.net.hosts.file={hosts}"]
    asked = "\n".join(case.line() for case in cases) + "\n"
    said = run_java("Placement", [], flags=flags, heap_mb=256, stdin=asked)
    answers = [line.split("\t") for line in said.splitlines()]
    assert len(answers) == len(cases), said
    return answers


def nodes_of(chance: random.Random, bookies: Sequence[str], racks: Sequence[str]) -> Case:
    ensemble = chance.randint(1, min(5, len(bookies)))
    write = chance.randint(1, ensemble)
    sizes = ensemble, write, chance.randint(1, write)
    nodes: dict[str, dict[str, dict[str, str]]] = {"default": {}}
    for bookie_id in bookies:
        if chance.random() < 0.9:
            rack = chance.choice(racks)
            nodes["default"][bookie_id] = {"rack": rack, "hostname": bookie_id}
    options = PlacementOptions(min_racks=chance.randint(1, 3), enforce_racks=chance.random() < 0.3)
    return Case("rack", sizes, options, nodes, list(bookies), everybody=list(bookies))


def bookies_of(chance: random.Random) -> list[str]:
    return [f"127.0.0.{n}:3181" for n in range(2, 2 + chance.randint(2, 9))]


def replaced(case: Case, ensemble: Sequence[str], place: int) -> Sequence[str]:
    """The ensemble after the bookie at that place failed."""
    metadata = LedgerMetadata(
        7, *case.sizes, LedgerState.OPEN, -1, 0, DigestType.CRC32C, b"", {0: tuple(ensemble)}, {}, 0
    )
    changed = change_ensemble(metadata, {ensemble[place]}, -1, case.writable, case.rules)
    return changed.ensembles[0]


def others(case: Case, ensemble: Sequence[str], place: int) -> list[Sequence[str]]:
    """All ensembles with another bookie at that place."""
    found: list[Sequence[str]] = []
    for bookie_id in case.writable:
        if bookie_id not in ensemble:
            found.append([*ensemble[:place], bookie_id, *ensemble[place + 1 :]])
    return found


def placed(chance: random.Random, case: Case) -> str | None:
    """Ensembles of the case: Apache's (""), ours, ours with a replacement, all others with one.
    Returns why ours isn't there.
    """
    case.ensembles = [()]
    try:
        ensemble = case.choose()
    except NotEnoughBookies as error:
        return str(error)
    case.ensembles.append(ensemble)
    case.has_replacement = True
    place = chance.randrange(len(ensemble))
    alternatives = others(case, ensemble, place)
    if alternatives:
        try:
            case.ensembles.append(replaced(case, ensemble, place))
        except NotEnoughBookies:
            case.has_replacement = False
        case.ensembles += alternatives
    return None


def judged(folder: Path, cases: Sequence[Case], refusals: Sequence[str | None]) -> tuple[int, int]:
    """Compare; returns how many ensembles met the policy, and how many had none."""
    met = 0
    for case, why, answer in zip(cases, refusals, ask(folder, cases), strict=True):
        reached = answer[0].partition(":")[0]
        if why is not None:
            assert reached == "NONE", (why, case)
            continue
        ours, *replacements = answer[1:]
        assert "MEETS_STRICT" in (ours, "") or reached != "MEETS_STRICT", case
        met += ours == "MEETS_STRICT"
        if case.kind == "rack" and replacements and ours == "MEETS_STRICT":
            chosen = replacements.pop(0) if case.has_replacement else "NONE"
            possible = replacements
            assert chosen == "MEETS_STRICT" or "MEETS_STRICT" not in possible, case
    return met, sum(why is not None for why in refusals)


def test_racks(tmp_path: Path) -> None:
    chance = random.Random(1)
    cases: list[Case] = []
    for _ in range(CASES):
        racks = [f"/r{n}" for n in range(chance.randint(1, 4))]
        cases.append(nodes_of(chance, bookies_of(chance), racks))
    met, refused = judged(tmp_path, cases, [placed(chance, case) for case in cases])
    assert met > CASES / 3
    assert refused > CASES / 40


def test_regions(tmp_path: Path) -> None:
    chance = random.Random(2)
    cases: list[Case] = []
    while len(cases) < CASES:
        regions = [f"g{n}" for n in range(chance.randint(2, 3))]
        racks = [f"/{region}/r{n}" for region in regions for n in range(chance.randint(1, 3))]
        case = nodes_of(chance, bookies_of(chance), racks)
        least = chance.randint(1, len(regions))
        case.kind = "region"
        case.options = PlacementOptions(
            by_region=True, regions=frozenset(regions), min_regions=least
        )
        size, _, ack = case.sizes
        write = size  # then the order doesn't matter, and Apache's policy can tell of a set
        case.sizes = size, write, ack
        if ack > write - write // least and ack >= least:
            cases.append(case)  # others are refused as settings that can't be kept
    met, _ = judged(tmp_path, cases, [placed(chance, case) for case in cases])
    assert met > CASES / 3


def test_isolation_groups(tmp_path: Path) -> None:
    """By the broker's settings, and by the ledger's own policy."""
    chance = random.Random(3)
    names = ["red", "green", "blue", "*"]
    cases: list[Case] = []

    def some() -> frozenset[str]:
        return frozenset(chance.sample(names, chance.choice([0, 1, 1, 1, 2])))

    for _ in range(CASES):
        case = nodes_of(chance, bookies_of(chance), ["/r1", "/r2"])
        case.kind = "isolated"
        case.nodes = {name: {} for name in names[:3]}
        for bookie_id in case.writable:
            for name in chance.sample(names[:3], chance.choice([0, 1, 1, 2])):
                case.nodes[name][bookie_id] = {"rack": "/r1", "hostname": bookie_id}
        case.options = PlacementOptions(isolation=Isolation(some() or {"red"}, some()))
        if chance.random() < 0.5:
            primary, secondary = ",".join(some() or ["green"]), ",".join(some())
            case.own_policy = isolation_policy(primary, secondary).decode()
        if len(cases) % 2:
            case.writable = chance.sample(case.writable, chance.randint(1, len(case.writable)))
        cases.append(case)
    for case, [allowed] in zip(cases, ask(tmp_path, cases), strict=True):
        usable = case.rules.usable(case.writable, case.sizes[0], case.metadata)
        known = set(allowed.split(",")) - {""}
        if len(case.writable) == len(case.everybody):
            assert set(usable) == known, case
        else:
            # Apache counts those of secondary groups that aren't there, and has fewer left then.
            assert set(usable) >= known, case
