"""Encodes DataFrames as messages: their schemas, and payloads of Arrow batches (spec SP-06)."""

from __future__ import annotations

from pyspark_pulsar._encode._encoder import Encoder as Encoder
from pyspark_pulsar._encode._encoder import Messages as Messages
from pyspark_pulsar._encode._frame import frame_of as frame_of
from pyspark_pulsar._encode._frame import schema_of_frame as schema_of_frame
from pyspark_pulsar._encode._layout import Frame as Frame
from pyspark_pulsar._encode._layout import Layout as Layout
from pyspark_pulsar._encode._pairs import are_halves as are_halves
