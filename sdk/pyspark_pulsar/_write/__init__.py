"""Writes DataFrames to topics (spec SP-06)."""

from __future__ import annotations

from pyspark_pulsar._write._writer import make_stream_writer as make_stream_writer
from pyspark_pulsar._write._writer import make_writer as make_writer
