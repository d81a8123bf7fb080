"""Fetches and prepares other people's software for the tests: `python -m compat_tests.peers`.

It may run beside what needs none of it; tests that need it do it themselves otherwise.
"""

from __future__ import annotations

from compat_tests.apache import training
from compat_tests.apache.jars import PeerMissing
from compat_tests.spark import training as spark_training


def prepare(*, apache: bool = True, spark: bool = True) -> str:
    """Apache's jars, our programs, an archive of their classes; one of Spark's. Returns what is
    missing.
    """
    try:
        if apache:
            training.prepare()
        if spark:
            spark_training.prepare()
    except PeerMissing as error:
        return str(error)  # the tests that need it say so, too
    return ""


if __name__ == "__main__":
    print(prepare() or "other people's software is ready")
