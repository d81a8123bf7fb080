"""Prints results of statements: a table for people, CSV and JSON for programs."""

from __future__ import annotations

import csv
import enum
import itertools
import json
import sys
from collections.abc import Iterator
from typing import TextIO

from pyspark.sql import DataFrame, Row

from pyspark_pulsar.cli._failures import Failure
from pyspark_pulsar.cli._options import ROWS_MAX
from pyspark_pulsar.cli._values import cell, plain, shown, table


class Form(enum.Enum):
    """How results are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def print_result(
    frame: DataFrame, form: Form, rows_max: int | None, out: TextIO = sys.stdout
) -> None:
    """Print the rows of a result; nothing for a statement without one. CSV and JSON (one record a
    line) are printed as rows arrive, in memory limited by a partition of the result. `rows_max`
    None is ROWS_MAX in a table and unlimited otherwise; 0 is unlimited. Raises Failure and
    PySpark's errors.
    """
    if not frame.columns:
        return
    if rows_max is None:
        rows_max = ROWS_MAX if form is Form.TABLE else 0
    if form is Form.TABLE:
        _print_table(frame, rows_max, out)
        return
    rows = _rows(frame, rows_max)
    (_print_csv if form is Form.CSV else _print_json)(frame, rows, out)


def _rows(frame: DataFrame, rows_max: int) -> Iterator[Row]:
    return iter(frame.limit(rows_max).collect()) if rows_max else frame.toLocalIterator()


def _print_table(frame: DataFrame, rows_max: int, out: TextIO) -> None:
    rows = frame.take(rows_max + 1) if rows_max else frame.collect()
    more = rows_max and len(rows) > rows_max
    kinds = [field.dataType for field in frame.schema.fields]
    kept = rows[:rows_max] if more else rows
    cells = [[shown(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in kept]
    for line in table(frame.columns, cells):
        print(line, file=out)
    count = f"{len(kept)} row" + ("" if len(kept) == 1 else "s")
    print(f"({count}, and more: --max-rows)" if more else f"({count})", file=out)


def _print_csv(frame: DataFrame, rows: Iterator[Row], out: TextIO) -> None:
    """RFC 4180, but with bare newlines; a null is an empty field."""
    kinds = [field.dataType for field in frame.schema.fields]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(frame.columns)
    for row in rows:
        cells = zip(row, kinds, strict=True)
        writer.writerow(["" if value is None else cell(value, kind) for value, kind in cells])


def _print_json(frame: DataFrame, rows: Iterator[Row], out: TextIO) -> None:
    for name, same in itertools.groupby(sorted(frame.columns)):
        if len(list(same)) > 1:
            raise Failure(f"two columns are called {name}: name them with AS for JSON")
    for row in rows:
        print(json.dumps(plain(row, frame.schema), ensure_ascii=False), file=out)
