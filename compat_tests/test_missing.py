"""The helper that skips: only what is missing skips, and the reason is told."""

import pytest

from compat_tests.apache.jars import PeerMissing, require_java
from compat_tests.missing import SPARK, skipped_without


def test_what_is_missing_skips_and_says_what() -> None:
    with (
        pytest.raises(pytest.skip.Exception, match="Spark is not here: no-such-java is not inst"),
        skipped_without(SPARK),
    ):
        require_java("no-such-java")


def test_nothing_else_skips() -> None:
    with pytest.raises(ValueError, match="a mistake"), skipped_without(SPARK):
        raise ValueError("a mistake")
    with skipped_without(SPARK):
        pass
    with pytest.raises(PeerMissing):
        require_java("no-such-java")
