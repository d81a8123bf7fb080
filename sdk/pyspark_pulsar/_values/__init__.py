"""Values of messages as Spark's and Arrow's columns (spec SP-02, SP-03): the columns of a topic's
schema, and a decoder that makes them of many payloads at once.
"""

from __future__ import annotations

from pyspark_pulsar._values._columns import ValueColumn, columns_of
from pyspark_pulsar._values._decoder import Decoded, Decoder, check_columns

__all__ = ["Decoded", "Decoder", "ValueColumn", "check_columns", "columns_of"]
