"""Decodes Avro payloads (spec SP-02, SP-03): all at once, step by step through the schema; the few
with long lists one by one.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import fastavro
import numpy as np
import pyarrow as pa

from pyspark_pulsar._decode._avro_schema import plain_definition
from pyspark_pulsar._decode._avro_steps import record_step
from pyspark_pulsar._decode._buffer import NOT_WHOLE, REASONS, Cursor
from pyspark_pulsar._decode._match import RecordPlan
from pyspark_pulsar._decode._objects import AvroSource, Builder, Columns
from pyspark_pulsar._decode._shapes import Record, holds_itself

EXPLAINED_MAX = 8
"""Malformed payloads of one call whose wrong field is reported: each is decoded once more."""


class AvroReader:
    """Decodes payloads of one version of a topic's schema."""

    def __init__(self, shape: Record, plan: RecordPlan) -> None:
        self._plan = plan
        self._plain = fastavro.parse_schema(plain_definition(shape))
        self._step = record_step(plan)
        # fastavro reads recursive records without a limit, until the stack overflows.
        self._is_deep = holds_itself(shape)

    def columns(self, payloads: Sequence[bytes]) -> Columns:
        """The wanted columns, and the errors of malformed payloads."""
        at = Cursor.over(payloads, leaves_some=not self._is_deep)
        arrays = self._step.columns(at)
        at.finish()
        at.fault[at.aside] = 0
        notes = {int(row): REASONS[at.fault[row]] for row in np.flatnonzero(at.fault)}
        for row in list(notes)[:EXPLAINED_MAX]:
            notes[row] = self._explained(payloads[row]) or notes[row]
        aside = np.flatnonzero(at.aside)
        if not len(aside):
            return Columns(arrays, notes)
        single = self._one_by_one([payloads[int(row)] for row in aside])
        notes.update((int(aside[row]), note) for row, note in single.notes.items())
        order = np.arange(len(payloads))
        order[aside] = len(payloads) + np.arange(len(aside))
        places = pa.array(order)
        merged = [
            pa.concat_arrays(both).take(places) for both in zip(arrays, single.arrays, strict=True)
        ]
        return Columns(merged, notes)

    def _explained(self, payload: bytes) -> str | None:
        """The error of a payload, with the field."""
        at = Cursor.over([payload], leaves_some=not self._is_deep)
        number = self._step.wrong_part(at)
        at.finish()
        if not at.fault[0] or at.aside[0]:
            return None
        told = REASONS[at.fault[0]]
        return told if number is None else f"{self._plan.parts[number].name}: {told}"

    def _one_by_one(self, payloads: Sequence[bytes]) -> Columns:
        """Decode payloads one by one, if a numpy call for each list item would take longer."""
        builder = Builder(AvroSource())
        rows: list[object] = []
        good: list[int] = []
        for number, payload in enumerate(payloads):
            stream = io.BytesIO(payload)
            try:
                found = fastavro.schemaless_reader(
                    stream,
                    self._plain,
                    None,
                    return_record_name=True,
                    return_record_name_override=True,
                )
            except Exception as error:
                # A reader may raise anything for broken bytes.
                builder.notes[number] = f"not a valid Avro record: {error or type(error).__name__}"
                continue
            if stream.tell() != len(payload):
                builder.notes[number] = REASONS[NOT_WHOLE]
                continue
            rows.append(found)
            good.append(number)
        arrays = builder.columns(self._plan, rows, np.array(good, np.int64))
        return Columns(
            [builder.placed(each, good, len(payloads)) for each in arrays], builder.notes
        )
