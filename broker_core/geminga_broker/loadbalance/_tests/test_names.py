"""Namespaces that belong to one broker."""

from __future__ import annotations

import pytest

from geminga_broker.loadbalance.names import (
    fixed_broker,
    heartbeat_broker,
    is_system,
    monitored_broker,
    namespace_of,
    range_of,
)


@pytest.mark.parametrize(
    ("namespace", "heartbeat", "monitored"),
    [
        ("pulsar/b1:8080", "b1:8080", None),
        ("pulsar/east/b1.example.com:8443", "b1.example.com:8443", None),
        ("pulsar/[::1]:8080", "[::1]:8080", None),
        ("sla-monitor/east/b1:8080", None, "b1:8080"),
        ("pulsar/system", None, None),
        ("pulsar/b1", None, None),
        ("pulsar/b1:", None, None),
        ("pulsar/b1:http", None, None),
        ("pulsar/a/b/c:1", None, None),
        ("sla-monitor/b1:8080", None, None),
        ("mypulsar/b1:8080", None, None),
        ("public/default", None, None),
    ],
)
def test_namespaces_of_one_broker(
    namespace: str, heartbeat: str | None, monitored: str | None
) -> None:
    assert heartbeat_broker(namespace) == heartbeat
    assert monitored_broker(namespace) == monitored
    expected = namespace == "pulsar/system" or bool(heartbeat or monitored)
    assert is_system(namespace) == expected


def test_heartbeat_goes_to_its_broker_even_if_that_is_away() -> None:
    assert fixed_broker("pulsar/b1:8080", []) == "b1:8080"


def test_monitor_goes_to_another_broker_while_its_own_is_away() -> None:
    assert fixed_broker("sla-monitor/east/b1:8080", ["b1:8080"]) == "b1:8080"
    assert fixed_broker("sla-monitor/east/b1:8080", ["b2:8080"]) is None
    assert fixed_broker("public/default", ["b1:8080"]) is None


def test_parts_of_a_bundles_name() -> None:
    name = "public/default/0x00000000_0x40000000"
    assert namespace_of(name) == "public/default"
    assert range_of(name) == "0x00000000_0x40000000"
    assert namespace_of("tenant/cluster/namespace/LARGEST") == "tenant/cluster/namespace"
