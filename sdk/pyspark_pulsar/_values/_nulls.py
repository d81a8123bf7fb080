"""Finds nulls where a column, or a part of it, may have none. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_pulsar._values._buffer import Flags


def has_required(field: pa.Field) -> bool:
    """Whether the field, or a part of it, may not be null. Keys of maps never are."""
    if not field.nullable:
        return True
    kind = field.type
    if pa.types.is_struct(kind):
        return any(has_required(each) for each in kind)
    if pa.types.is_list(kind):
        return has_required(kind.value_field)
    return pa.types.is_map(kind) and has_required(kind.item_field)


def missing(array: pa.Array, field: pa.Field) -> Flags:
    """In which rows there is a null that may not be."""
    there: Flags = array.is_valid().to_numpy(zero_copy_only=False)
    wrong = ~there if not field.nullable else np.zeros(len(array), bool)
    kind = field.type
    if pa.types.is_struct(kind):
        for number, each in enumerate(kind):
            if has_required(each):
                # Under a null struct there may be anything.
                wrong |= missing(array.field(number), each) & there
    elif pa.types.is_list(kind) and has_required(kind.value_field):
        wrong |= _below(array, array.flatten(), kind.value_field)
    elif pa.types.is_map(kind) and has_required(kind.item_field):
        plain = pa.ListArray.from_arrays(array.offsets, array.items)
        wrong |= _below(array, plain.flatten(), kind.item_field) & there
    return wrong


def _below(array: pa.Array, items: pa.Array, field: pa.Field) -> Flags:
    """Which lists have an item that may not be."""
    sizes = np.diff(array.offsets.to_numpy())
    sizes[~array.is_valid().to_numpy(zero_copy_only=False)] = 0
    owners = np.repeat(np.arange(len(array)), sizes)
    wrong = np.zeros(len(array), bool)
    wrong[owners[: len(items)][missing(items, field)]] = True
    return wrong
