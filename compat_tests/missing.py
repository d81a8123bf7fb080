"""The one place where a test is skipped: what it needs and we do not bring is not here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from compat_tests.apache.jars import PeerMissing

JAVA_CLIENT = "Apache's Java client"
GO_CLIENT = "Apache's Go client"
APACHE = "Apache Pulsar"
CHROMIUM = "Chromium"
BOOKIE = "Apache BookKeeper"
SPARK = "Spark"
ZOOKEEPER = "Apache ZooKeeper"
IPROUTE2 = "iproute2"

REQUIRED = "GEMINGA_REQUIRE_PEERS"
"""The environment variable by which software of others that is missing fails the tests."""


def is_required() -> bool:
    """Whether software of others must be here."""
    return os.environ.get(REQUIRED, "") not in ("", "0")


@contextlib.contextmanager
def skipped_without(software: str) -> Iterator[None]:
    """Skip the test, with the reason, when what is done inside finds that something is missing;
    fail it where `GEMINGA_REQUIRE_PEERS` is set.
    """
    try:
        yield
    except PeerMissing as reason:
        text = f"{software} is not here: {reason}"
        if is_required():
            pytest.fail(f"{text} ({REQUIRED} is set)", pytrace=False)
        pytest.skip(text)


def skip_unpermitted(reason: str) -> None:
    """Skip a test that needs a file system or a network of its own where none may be made: the
    simulations fill disks and cut links too. That is no software, so nothing requires it.
    """
    pytest.skip(f"{reason}; the simulations do it without")
