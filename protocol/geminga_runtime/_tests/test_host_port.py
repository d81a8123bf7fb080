"""Hosts and ports in URLs and log lines."""

from __future__ import annotations

import pytest

from geminga_runtime.host_port import bracketed, host_port


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("broker-1.example", "broker-1.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("fe80::1", "[fe80::1]"),
    ],
)
def test_only_addresses_of_ipv6_have_brackets(host: str, shown: str) -> None:
    assert bracketed(host) == shown
    assert host_port(host, 6650) == f"{shown}:6650"
