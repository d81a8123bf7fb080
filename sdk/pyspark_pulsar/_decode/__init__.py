"""Values of messages as Spark's and Arrow's columns (spec SP-02, SP-03): the columns of a topic's
schema, and a decoder of many payloads at once.
"""

from __future__ import annotations

from pyspark_pulsar._decode._decoder import Decoded, Decoder, ValueColumn, check_columns, columns_of
from pyspark_pulsar._decode._pairs import HALVES, PairInfo, pair_info

__all__ = [
    "HALVES",
    "Decoded",
    "Decoder",
    "PairInfo",
    "ValueColumn",
    "check_columns",
    "columns_of",
    "pair_info",
]
