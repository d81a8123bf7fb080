"""The one place where a test is skipped: software of others that it needs is not here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from compat_tests.apache.jars import PeerMissing

JAVA_CLIENT = "Apache's Java client"
GO_CLIENT = "Apache's Go client"
APACHE = "Apache Pulsar"
SPARK = "Spark"


@contextlib.contextmanager
def skipped_without(software: str) -> Iterator[None]:
    """Skip the test, with the reason, when what is done inside finds that something is missing."""
    try:
        yield
    except PeerMissing as reason:
        pytest.skip(f"{software} is not here: {reason}")
