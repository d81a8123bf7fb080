"""The table of `docs/spark.md` about PySpark's versions, held by the version that runs."""

from __future__ import annotations

import re

import pyspark

from compat_tests.processes import ROOT
from compat_tests.spark.versions import VERSIONS
from pyspark_pulsar._spark_api import HAS_FILTERS, HAS_READ_LIMITS, DataSourceStreamArrowWriter

TITLE = "\n## Versions of PySpark\n"


def told() -> dict[str, dict[str, str]]:
    """Version -> what the table says of it, by row."""
    text = (ROOT / "docs" / "spark.md").read_text()
    start = text.index(TITLE)
    lines = re.findall(r"^\|.*", text[start : text.index("\n## ", start + 1)], re.MULTILINE)
    head, _, *rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    columns = zip(*rows, strict=True)
    names = next(columns)
    return {
        version: dict(zip(names, column, strict=True))
        for version, column in zip(head[1:], columns, strict=True)
    }


def test_what_this_version_has_is_told_right() -> None:
    this = told()[".".join(pyspark.__version__.split(".")[:2])]
    assert (this["filters, `pushdown=true`"] == "yes") is HAS_FILTERS
    arrow = DataSourceStreamArrowWriter is not None
    assert (this["a stream is written by"] == "Arrow batches") is arrow
    assert (this["micro-batches of `availableNow`"] == "as many as the limits ask for") is (
        HAS_READ_LIMITS
    )


def test_versions_that_were_run_are_those_that_can_be_run_again() -> None:
    run = {one for column in told().values() for one in column["run with"].split(", ")}
    locked = re.search(
        r"^pyspark==(.*)$", (ROOT / "requirements" / "dev.lock").read_text(), re.MULTILINE
    )
    assert locked is not None
    assert run == {*VERSIONS, locked[1]}
    allowed = re.search(r'"pyspark>=([\d.]+),<([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert allowed is not None
    numbers = sorted([int(part) for part in each.split(".")] for each in run)
    least, beyond = ([int(part) for part in each.split(".")] for each in allowed.groups())
    assert numbers[0][: len(least)] == least
    assert beyond == [numbers[-1][0], numbers[-1][1] + 1]
