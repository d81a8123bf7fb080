"""What Spark's rows count with: records, ages, the processes below one."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compat_tests.bench import spark_rows
from compat_tests.bench.rows import ROWS
from compat_tests.bench.spark_processes import Engine
from compat_tests.bench.spark_stream import Ages
from compat_tests.bench.spark_values import (
    AMOUNTS,
    COUNTRIES,
    FIRST_ID,
    SIZE_BYTES,
    Sale,
    amount_of_all,
    sales,
    schema,
)
from compat_tests.processes import guarded

_TREE = """
import subprocess, sys
engine = subprocess.Popen([sys.argv[1], "-c", sys.argv[2]])
other = "while time.process_time() < 0.3: pass"
beside = subprocess.Popen([sys.executable, "-c", "import time\\n" + other + "\\ninput()"],
                          stdin=subprocess.PIPE)
engine.wait()
beside.communicate(b"\\n")
"""
"""What is watched: an engine, and a process beside it that is none."""

_ENGINE = """
import subprocess, sys, time
def spin(cpu_s):
    while time.process_time() < cpu_s: pass
worker = "import time; kept = b'x' * 60_000_000\\nwhile time.process_time() < 0.4: pass"
subprocess.run([sys.executable, "-c", worker])
alive = subprocess.Popen([sys.executable, "-c", worker + "\\nprint(flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
alive.stdout.readline()
spin(0.2)
print("ready", flush=True)
input()
alive.communicate(b"\\n")
"""
"""A process that a copy of Python named java runs, with a worker that ended and one that lives."""


def test_records_are_of_the_size_that_rows_tell() -> None:
    typed = schema()
    for number in (0, 9_999, 63 * 60 + 59, 1_999_999):
        (sale,) = sales(number, 1)
        data = typed.encode(sale)
        assert len(data) == SIZE_BYTES
        assert typed.decode(data) == sale
        assert sale.id == FIRST_ID + number


def test_sums_and_countries() -> None:
    found = list(sales(0, 2 * AMOUNTS + 100))
    for count in (0, 1, AMOUNTS - 1, AMOUNTS, 2 * AMOUNTS + 100):
        assert amount_of_all(count) == sum(sale.amount for sale in itertools.islice(found, count))
    assert {sale.country for sale in found} == set(COUNTRIES)
    assert len({sale.comment for sale in found}) == len(found)
    assert isinstance(found[0], Sale)


def test_ages_leave_the_first_seconds_out() -> None:
    ages = Ages()
    amounts = np.full(100, 0.25)
    ages.add(np.zeros(0), np.zeros(0), 999_999.0)
    ages.add(1000.0 + np.arange(100), amounts, 11_000.0)
    ages.add(6000.0 + np.arange(100), amounts, 6600.0)
    assert (ages.seen, ages.amount) == (200, 50.0)
    ages.add(7000.0 + np.arange(100), amounts, 7600.0)
    ages.add(8000.0 + np.arange(50), amounts[:50], 8600.0)
    found = ages.figures(warmup_s=5)
    assert found["ms_max"] == 600
    assert found["ms_p50"] == 559
    assert found["micro_batches"] == 4
    assert ages.figures(warmup_s=0)["ms_max"] == 10_000
    ages.forget()
    ages.add(1000.0 + np.arange(100), amounts, 1500.0)
    ages.add(2000.0 + np.arange(100), amounts, 2500.0)
    ages.add(3000.0 + np.arange(50), amounts[:50], 3500.0)
    assert (ages.seen, ages.amount) == (250, 62.5)
    found = ages.figures(warmup_s=0.5)
    assert (found["micro_batches"], found["reached_per_s"]) == (3, 75)


@pytest.mark.slow
def test_processor_time_and_memory_by_kind(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.symlink_to(os.path.realpath(sys.executable))
    command = [sys.executable, "-c", _TREE, str(java), _ENGINE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        subprocess.Popen(guarded(command), **pipes, text=True) as process,
        # Other tests of the same run may have left an engine below pytest itself.
        Engine(period_s=0.05, root=process.pid) as engine,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        used, memory = engine.used(), engine.memory()
        process.communicate("\n")
    assert 0.75 <= used.python_s < 1.3
    assert 0.18 <= used.engine_s < 0.6
    assert 60 < memory["worker_rss_mb"] < 150
    assert 60 < memory["python_mb"] < 150
    assert 3 < memory["engine_rss_mb"] < 60
    later = engine.used() - used
    assert (later.python_s, later.engine_s) == (-used.python_s, -used.engine_s)


def test_rows_are_in_the_table() -> None:
    assert set(spark_rows.SPARK_ROWS) <= set(ROWS)
    assert all(row.geminga_only for row in spark_rows.SPARK_ROWS)
