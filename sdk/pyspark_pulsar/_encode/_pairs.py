"""DataFrames written as pairs: columns `key` and `value`, each with its own schema (spec SP-06;
KeyValueSchemaImpl of the Java client).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from geminga.schema import AlreadyEncoded, KeyValue, KeyValueEncodingType, SchemaInfo, SchemaType
from pyspark_pulsar._decode import HALVES, PairInfo, pair_info
from pyspark_pulsar._encode import _columns as columns
from pyspark_pulsar._encode._cells import Mask, Parts, all_of, fixed
from pyspark_pulsar._encode._layout import Frame, Layout
from pyspark_pulsar._encode._single import INFOS
from pyspark_pulsar._encode._spark_types import record_info, simple_name
from pyspark_pulsar._options._pair import HalfChoice, PairEncoding
from pyspark_pulsar._options._write_options import WriteOptions
from pyspark_pulsar.errors import InvalidOption, SchemaMismatch

_RAW = {SchemaType.BYTES, SchemaType.NONE}
Half = tuple[pa.Array, Mask]
"""Bytes of each row (large_binary without nulls), and whether the row has a value."""


def are_halves(names: Sequence[str]) -> bool:
    """Whether these are the columns of a pair."""
    return sorted(name.lower() for name in names) == list(HALVES)


def pair_of_columns(
    layout: Layout, schema: t.StructType, options: WriteOptions, topic_info: SchemaInfo | None
) -> Frame:
    """A frame of pairs with a schema by its columns, and the encoding of the topic's pairs if it
    has any. Raises SchemaMismatch and InvalidOption.
    """
    key, value = _halves(layout, "schemaType=keyvalue")
    choice = options.pair
    record = options.record_name
    infos = (
        _half_info(schema[key], choice.key, f"{record}Key", "keySchemaType"),
        _half_info(schema[value], choice.value, record, "valueSchemaType"),
    )
    known = _known(topic_info)
    if known is not None:
        _check_kind(key, infos[0], known.key)
        _check_kind(value, infos[1], known.value)
    encoding = KeyValueEncodingType[_encoding(choice.encoding, known).name]
    info = KeyValue(AlreadyEncoded(infos[0]), AlreadyEncoded(infos[1]), encoding).info
    return _frame(layout, options, info, pair_info(info))


def _known(info: SchemaInfo | None) -> PairInfo | None:
    """The topic's pairs, if it has any. Brokers would accept halves of other types and another
    encoding; these are refused here.
    """
    if info is None or info.type is not SchemaType.KEY_VALUE:
        return None
    return pair_info(info)


def _check_kind(column: str, made: SchemaInfo, theirs: SchemaInfo) -> None:
    if made.type is not theirs.type and {made.type, theirs.type} != _RAW:
        raise SchemaMismatch(
            f"column {column}",
            f"would be {made.type.name}, but is {theirs.type.name} in the topic's pairs; cast it, "
            "or write with schemaType=topic",
        )


def _encoding(told: PairEncoding | None, known: PairInfo | None) -> PairEncoding:
    if known is None:
        return told or PairEncoding.INLINE
    theirs = PairEncoding.SEPARATED if known.is_separated else PairEncoding.INLINE
    if told not in (None, theirs):
        raise InvalidOption(
            "keyValueEncoding",
            f"must be {theirs.name}, as the topic's pairs are; leave the option out",
        )
    return theirs


def pair_of_topic(layout: Layout, options: WriteOptions, info: SchemaInfo) -> Frame:
    """A frame of pairs with the topic's schema. Raises SchemaMismatch and InvalidOption."""
    _halves(layout, "the topic's schema, KEY_VALUE,")
    return _frame(layout, options, info, pair_info(info))


def _halves(layout: Layout, who: str) -> tuple[str, str]:
    if not are_halves(layout.values):
        raise SchemaMismatch(
            f"columns {', '.join(layout.values)}",
            f"aren't a pair: {who} needs key and value; records are structs there, and what is "
            "missing is lit(None) with the type of the column",
        )
    key, value = sorted(layout.values, key=str.lower)
    return key, value


def _frame(layout: Layout, options: WriteOptions, info: SchemaInfo, pair: PairInfo) -> Frame:
    key, value = sorted(layout.values, key=str.lower)
    if pair.is_separated and options.key_field is not None:
        raise InvalidOption(
            "keyField", "must be left out: the key of separated pairs is the column key"
        )
    if pair.is_separated and layout.key is not None:
        raise SchemaMismatch(
            f"column {layout.key}",
            "can't be written: the key of separated pairs is the column key; drop it",
        )
    halves = (
        Frame(Layout((key,)), pair.key, is_struct=True),
        Frame(Layout((value,)), pair.value, is_struct=True),
    )
    return Frame(layout, info, halves=halves, is_separated=pair.is_separated)


def _half_info(column: t.StructField, choice: HalfChoice, record: str, option: str) -> SchemaInfo:
    """The schema of one half. Raises SchemaMismatch and InvalidOption."""
    kind = column.dataType
    if choice in (HalfChoice.BYTES, HalfChoice.STRING):
        return INFOS["binary" if choice is HalfChoice.BYTES else "string"]
    if isinstance(kind, t.StructType):
        of = SchemaType.JSON if choice is HalfChoice.JSON else SchemaType.AVRO
        return record_info(kind, of, record, column.name)
    single = INFOS.get(simple_name(kind))
    if choice is not HalfChoice.AUTO:
        raise InvalidOption(
            option,
            f"is {choice.value}, which needs a struct, but column {column.name} is "
            f"{kind.simpleString()}; leave the option out, or make it a struct of one field",
        )
    if single is None:
        raise SchemaMismatch(
            f"column {column.name}",
            f"is {kind.simpleString()}, which can't be half of a pair; make it a struct of one "
            "field, or cast it",
        )
    return single


def inline(halves: Sequence[Half]) -> list[bytes]:
    """The payloads of inline pairs: each half as its size (-1 for null) and its bytes."""
    rows = len(halves[0][0])
    parts = Parts(rows)
    for texts, present in halves:
        sizes = np.where(present, columns.lengths(texts), -1)
        cells = fixed(sizes.astype(">i4"))
        parts.cells(cells, np.broadcast_to(all_of(rows)[:, None], cells.shape))
        parts.texts(texts)
    found: list[bytes] = parts.joined().to_pylist()
    return found
