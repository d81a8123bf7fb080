"""Arrow record batches of received entries (spec SP-02, SP-03).

Payloads are extracted and decoded only if a column of the value is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from geminga.schema import SchemaInfo
from pyspark_pulsar._decode import Decoder
from pyspark_pulsar._decode._metadata import (
    METADATA,
    EntrySlice,
    EntrySlices,
    arrow_schema,
    is_metadata,
)
from pyspark_pulsar._options import ParseMode, ReadOptions
from pyspark_pulsar.errors import MalformedMessage

Infos = Callable[[bytes | None], SchemaInfo | None]


class Rows:
    """Collects messages and makes record batches of at most `batch_rows_max` rows and about
    `batch_bytes_max` bytes of payload (at least one row).
    """

    def __init__(self, schema: StructType, options: ReadOptions, infos: Infos) -> None:
        self._schema = arrow_schema(schema)
        self._mode = options.parse_mode
        self._corrupt = options.corrupt_record_column
        self._rows_max = options.batch_rows_max
        self._bytes_max = options.batch_bytes_max
        wanted = [
            field
            for field in self._schema
            if not is_metadata(field.name) and field.name != self._corrupt
        ]
        self._wanted = [field.name for field in wanted]
        self._has_corrupt = self._corrupt in self._schema.names
        self._drops = self._mode is ParseMode.DROPMALFORMED
        self._decoder: Decoder | None = None
        if wanted or self._has_corrupt:
            self._decoder = Decoder(wanted, infos, self._mode)
        self._start()

    def _start(self) -> None:
        self._slices: list[EntrySlice] = []
        self._rows = 0
        self._bytes = 0.0

    def add(self, entry_slice: EntrySlice) -> Iterator[pa.RecordBatch]:
        """Add messages; yields full batches."""
        entry, at, stop = entry_slice
        mean_bytes = max(1.0, entry.size_bytes / max(1, len(entry.indexes)))
        while at < stop:
            room_bytes = self._bytes_max - self._bytes
            room = min(self._rows_max - self._rows, int(room_bytes / mean_bytes))
            if room < 1 and self._rows:
                yield from self.flush()
                continue
            end = min(stop, at + max(1, room))
            self._slices.append(EntrySlice(entry, at, end))
            self._rows += end - at
            self._bytes += mean_bytes * (end - at)
            at = end

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The last batch, if any messages are left."""
        if not self._rows:
            return
        slices = EntrySlices(self._slices)
        self._start()
        made = self._make(slices)
        if made.num_rows:
            yield made

    def _make(self, slices: EntrySlices) -> pa.RecordBatch:
        found = {
            name: METADATA[name].make(slices) for name in self._schema.names if is_metadata(name)
        }
        malformed: list[int] = []
        if self._decoder is not None:
            columns, malformed = self._decoded(self._decoder, slices)
            found.update(zip(self._wanted, columns, strict=True))
            if self._has_corrupt and self._corrupt is not None:
                found[self._corrupt] = self._corrupt_records(slices, malformed)
        batch = pa.RecordBatch.from_arrays(
            [found[name] for name in self._schema.names], schema=self._schema
        )
        if self._drops and malformed:
            keep = np.ones(slices.rows, bool)
            keep[malformed] = False
            batch = batch.filter(pa.array(keep))
        return batch

    def _decoded(self, decoder: Decoder, slices: EntrySlices) -> tuple[list[pa.Array], list[int]]:
        """The value's columns, and the malformed rows."""
        groups: dict[bytes | None, list[int]] = {}
        for number, (entry, _, _) in enumerate(slices.each):
            groups.setdefault(entry.schema_version, []).append(number)
        if len(groups) == 1:
            return _decode(decoder, slices, *groups)
        # Versions may change with every message: decode those of one version together, then restore
        # the order.
        starts = np.concatenate(([0], np.cumsum([stop - at for _, at, stop in slices.each])))
        parts: list[list[pa.Array]] = []
        rows: list[np.ndarray] = []
        malformed: list[int] = []
        for version, numbers in groups.items():
            part = EntrySlices([slices.each[number] for number in numbers])
            places = np.concatenate([np.arange(starts[n], starts[n + 1]) for n in numbers])
            columns, bad = _decode(decoder, part, version)
            parts.append(columns)
            rows.append(places)
            malformed += [int(places[row]) for row in bad]
        order = pa.array(np.argsort(np.concatenate(rows), kind="stable"))
        joined = [pa.concat_arrays(list(each)).take(order) for each in zip(*parts, strict=True)]
        return joined, sorted(malformed)

    def _corrupt_records(self, slices: EntrySlices, malformed: list[int]) -> pa.Array:
        kind = self._schema.field(self._corrupt).type
        found: list[bytes | str | None] = [None] * slices.rows
        if malformed:
            payloads = slices.listed(lambda entry: entry.payloads())
            for row in malformed:
                data = payloads[row]
                is_binary = pa.types.is_binary(kind)
                found[row] = data if is_binary else data.decode("utf-8", "backslashreplace")
        return pa.array(found, kind)


def _decode(
    decoder: Decoder, slices: EntrySlices, version: bytes | None
) -> tuple[list[pa.Array], list[int]]:
    payloads = slices.listed(lambda entry: entry.payloads())
    nulls = slices.listed(lambda entry: entry.nulls())
    keys = slices.listed(lambda entry: entry.keys_as_bytes()) if decoder.needs_keys else None
    try:
        decoded = decoder.decode(payloads, nulls, keys, version)
    except MalformedMessage as error:
        raise MalformedMessage(error.row, error.reason, _place(slices, error.row)) from None
    return decoded.columns, decoded.malformed


def _place(slices: EntrySlices, row: int) -> str:
    """The message id and topic of a row."""
    topics = slices.spread(lambda entry: entry.topic_name, pa.string())
    return f"{slices.ids_as_text()[row].as_py()} of {topics[row].as_py()}"
