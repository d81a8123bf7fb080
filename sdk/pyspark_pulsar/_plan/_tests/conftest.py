"""Collects only tests that this PySpark supports."""

from __future__ import annotations

from pyspark_pulsar._spark_api import HAS_FILTERS

# PySpark 4.0 has no filters, and what takes them is imported from 4.1 on only; before that they are
# refused, as `_scan/_tests/test_batch.py` holds.
collect_ignore = [] if HAS_FILTERS else ["test_pushed.py"]
