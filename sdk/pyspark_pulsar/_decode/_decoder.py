"""The columns of a topic, and the decoder of payloads, each with the schema version that it was
written with (spec SP-02, SP-03).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField

from geminga.schema import SchemaInfo, SchemaType
from pyspark_pulsar._decode._buffer import Flags
from pyspark_pulsar._decode._leaves import without
from pyspark_pulsar._decode._metadata import METADATA
from pyspark_pulsar._decode._objects import Columns
from pyspark_pulsar._decode._readers import (
    NO_SCHEMA,
    VALUE,
    PairReader,
    Reader,
    fields_of,
    read_some,
    reader_of,
)
from pyspark_pulsar._decode._shapes import check_names
from pyspark_pulsar._options import ParseMode
from pyspark_pulsar.errors import MalformedMessage, SchemaMismatch

VERSIONS_KEPT_MAX = 64
"""Versions of a topic's schema whose readers are kept."""
BYTES_TOGETHER_MAX = 512 * 1024 * 1024
"""More payloads are decoded in several steps: Arrow's strings have offsets of 32 bits."""
REASONS_MAX = 100
"""Malformed messages of one call whose errors are reported."""


@dataclass(frozen=True)
class ValueColumn:
    """A column of messages' values. `path` is its path in the topic's schema; empty if the column
    is the whole value.
    """

    name: str
    arrow: pa.Field
    spark: StructField
    path: tuple[str, ...]


def columns_of(info: SchemaInfo | None) -> tuple[ValueColumn, ...]:
    """The columns of a topic with that schema (None: no schema): the fields of records, `key` and
    `value` of pairs, else one `value`. All are nullable.

    Raises SchemaMismatch, naming the field, for a field that can't be a column.
    """
    fields = fields_of(info or NO_SCHEMA)
    check_names((each.name for each in fields), "")
    taken = {each.lower() for each in METADATA}
    made: list[ValueColumn] = []
    for each in fields:
        if each.name.lower() in taken:
            raise SchemaMismatch(
                each.name,
                "is also the name of a metadata column; read with a schema that leaves the field "
                "out",
            )
        kind = from_arrow_type(each.type, prefer_timestamp_ntz=True)
        is_whole = len(fields) == 1 and each.name == VALUE
        spark = StructField(each.name, kind, nullable=True)
        made.append(ValueColumn(each.name, each, spark, () if is_whole else (each.name,)))
    return tuple(made)


@dataclass(frozen=True)
class Decoded:
    """The wanted columns of some payloads. `malformed` are the malformed rows, in order, whose
    values are null; `reasons` has the errors of the first of them.
    """

    columns: list[pa.Array]
    malformed: list[int] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)


class Decoder:
    """Decodes payloads of one topic into the wanted columns.

    `infos` returns the schema of a version, for None the topic's newest one, which is used for
    messages without a version. It returns None for no schema.
    """

    def __init__(
        self,
        wanted: Sequence[pa.Field],
        infos: Callable[[bytes | None], SchemaInfo | None],
        mode: ParseMode,
    ) -> None:
        """Raises SchemaMismatch for a NOT NULL column with mode PERMISSIVE."""
        self._wanted = list(wanted)
        self._infos = infos
        self._mode = mode
        self._readers: OrderedDict[bytes | None, Reader | PairReader | str] = OrderedDict()
        self._required = [n for n, each in enumerate(self._wanted) if has_required(each)]
        for each in self._wanted:
            if mode is ParseMode.PERMISSIVE and not each.nullable:
                raise SchemaMismatch(
                    each.name, "is NOT NULL, but mode=PERMISSIVE reads malformed values as null"
                )

    @cached_property
    def _latest(self) -> SchemaInfo:
        return self._infos(None) or NO_SCHEMA

    @cached_property
    def needs_keys(self) -> bool:
        """Whether `decode` needs the messages' keys."""
        if self._latest.type is not SchemaType.KEY_VALUE:
            return False
        return any(each.name.lower() == "key" for each in self._wanted)

    def decode(
        self,
        payloads: list[bytes],
        nulls: list[bool],
        keys: list[bytes | None] | None,
        schema_version: bytes | None,
    ) -> Decoded:
        """The wanted columns of messages written with one schema version. `nulls` marks the null
        messages.

        Raises MalformedMessage in FAILFAST.
        """
        given: Sequence[bytes | None] = payloads
        has_nulls = True in nulls
        if has_nulls:
            # A null message has no payload.
            both = zip(payloads, nulls, strict=True)
            given = [None if is_null and not data else data for data, is_null in both]
        found = self._columns(given, keys, schema_version, has_nulls=has_nulls)
        return self._judged(found, len(payloads))

    def _columns(
        self,
        payloads: Sequence[bytes | None],
        keys: list[bytes | None] | None,
        version: bytes | None,
        *,
        has_nulls: bool,
    ) -> Columns:
        reader = self._reader(version)
        if isinstance(reader, str):
            nothing = [pa.nulls(len(payloads), each.type) for each in self._wanted]
            rows = (n for n, each in enumerate(payloads) if each is not None)
            return Columns(nothing, dict.fromkeys(rows, reader))
        size = sum(map(len, filter(None, payloads)))
        if size > BYTES_TOGETHER_MAX and len(payloads) > 1:
            half = len(payloads) // 2
            first = self._columns(
                payloads[:half], keys and keys[:half], version, has_nulls=has_nulls
            )
            second = self._columns(
                payloads[half:], keys and keys[half:], version, has_nulls=has_nulls
            )
            arrays = [
                pa.concat_arrays(both) for both in zip(first.arrays, second.arrays, strict=True)
            ]
            return Columns(
                arrays, {**first.notes, **{half + n: t for n, t in second.notes.items()}}
            )
        if isinstance(reader, PairReader):
            return reader.columns(payloads, keys)
        found = read_some(reader, payloads) if has_nulls else reader.columns(payloads)  # type: ignore[arg-type]
        return Columns(found.arrays[: len(self._wanted)], found.notes)

    def _reader(self, version: bytes | None) -> Reader | PairReader | str:
        """The reader of a version; a reason if its messages can't be read as these columns."""
        known = self._readers.get(version)
        if known is not None:
            self._readers.move_to_end(version)
            return known
        info = self._latest if version is None else self._infos(version) or NO_SCHEMA
        made: Reader | PairReader | str
        try:
            make = PairReader if info.type is SchemaType.KEY_VALUE else reader_of
            made = make(info, self._wanted, latest=self._latest)
        except SchemaMismatch as error:
            made = f"its schema version doesn't match the columns: {error}"
        self._readers[version] = made
        if len(self._readers) > VERSIONS_KEPT_MAX:
            self._readers.popitem(last=False)
        return made

    def _judged(self, found: Columns, count: int) -> Decoded:
        arrays, notes = found
        for number in self._required:
            column = self._wanted[number]
            for row in np.flatnonzero(missing(arrays[number], column)):
                notes.setdefault(int(row), f"{column.name}: null where the column is NOT NULL")
        if not notes:
            return Decoded(arrays)
        malformed = sorted(notes)
        if self._mode is ParseMode.FAILFAST:
            raise MalformedMessage(malformed[0], notes[malformed[0]])
        wrong = np.zeros(count, bool)
        wrong[malformed] = True
        reasons = {row: notes[row] for row in malformed[:REASONS_MAX]}
        return Decoded([without(each, wrong) for each in arrays], malformed, reasons)


def check_columns(wanted: Sequence[pa.Field], info: SchemaInfo | None) -> None:
    """Raises SchemaMismatch, naming the column, if a topic with that schema can't provide the
    wanted columns.
    """
    known = info or NO_SCHEMA
    make = PairReader if known.type is SchemaType.KEY_VALUE else reader_of
    make(known, wanted, latest=known, strict=True)


def has_required(field: pa.Field) -> bool:
    """Whether the field, or a part of it, is NOT NULL. Ignores keys of maps: never null."""
    if not field.nullable:
        return True
    kind = field.type
    if pa.types.is_struct(kind):
        return any(has_required(each) for each in kind)
    if pa.types.is_list(kind):
        return has_required(kind.value_field)
    return pa.types.is_map(kind) and has_required(kind.item_field)


def missing(array: pa.Array, field: pa.Field) -> Flags:
    """The rows with a null in a NOT NULL part."""
    there: Flags = array.is_valid().to_numpy(zero_copy_only=False)
    wrong = ~there if not field.nullable else np.zeros(len(array), bool)
    kind = field.type
    if pa.types.is_struct(kind):
        for number, each in enumerate(kind):
            if has_required(each):
                # Members of a null struct are undefined.
                wrong |= missing(array.field(number), each) & there
    elif pa.types.is_list(kind) and has_required(kind.value_field):
        wrong |= _below(array, array.flatten(), kind.value_field)
    elif pa.types.is_map(kind) and has_required(kind.item_field):
        plain = pa.ListArray.from_arrays(array.offsets, array.items)
        wrong |= _below(array, plain.flatten(), kind.item_field) & there
    return wrong


def _below(array: pa.Array, items: pa.Array, field: pa.Field) -> Flags:
    """The lists with such a null in an item."""
    sizes = np.diff(array.offsets.to_numpy())
    sizes[~array.is_valid().to_numpy(zero_copy_only=False)] = 0
    owners = np.repeat(np.arange(len(array)), sizes)
    wrong = np.zeros(len(array), bool)
    wrong[owners[: len(items)][missing(items, field)]] = True
    return wrong
