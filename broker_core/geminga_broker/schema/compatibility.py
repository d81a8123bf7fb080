"""Compatibility of schemas, by type and strategy (Apache's `SchemaCompatibilityCheck` and its
subclasses in the broker's default configuration: PROTOBUF has no rules but the strategy's).
"""

from __future__ import annotations

from collections.abc import Sequence

from geminga_broker.schema.key_value import split_key_value
from geminga_broker.schema.model import IncompatibleSchema, SchemaData, Strategy
from geminga_broker.schema.native import root_message
from geminga_broker.schema.validation import avro_of, old_json_id
from geminga_protocol.avro_resolve import can_read
from geminga_protocol.avro_schema import AvroSchema, AvroSchemaError, pretty
from geminga_protocol.schema_type import SchemaType

_UNKNOWN_FORMAT = "Unknown schema format"


def check_latest(existing: SchemaData, new: SchemaData, strategy: Strategy) -> None:
    """Raises IncompatibleSchema unless `new` may follow the latest schema."""
    if strategy is Strategy.ALWAYS_COMPATIBLE:
        return
    _check_type(existing, new)
    if existing.data == new.data:
        return
    if new.type is SchemaType.JSON:
        _check_json(existing, new, strategy)
    else:
        _check([existing], new, strategy)


def check_all(existing: Sequence[SchemaData], new: SchemaData, strategy: Strategy) -> None:
    """Raises IncompatibleSchema unless `new` may follow all of these, in this order."""
    if strategy is Strategy.ALWAYS_COMPATIBLE:
        return
    for each in existing:
        _check_type(each, new)
    _check(existing, new, strategy)


def _check_type(existing: SchemaData, new: SchemaData) -> None:
    if existing.type is not new.type:
        raise IncompatibleSchema(
            f"Incompatible schema: exists schema type {existing.type.name}, new schema type "
            f"{new.type.name}"
        )


def _check(existing: Sequence[SchemaData], new: SchemaData, strategy: Strategy) -> None:
    if new.type in (SchemaType.AVRO, SchemaType.JSON):
        _check_avro(existing, new, strategy)
    elif new.type is SchemaType.KEY_VALUE:
        _check_pairs(existing, new, strategy)
    elif new.type is SchemaType.PROTOBUF_NATIVE:
        _check_native(existing, new, strategy)
    elif strategy is Strategy.ALWAYS_INCOMPATIBLE:
        raise IncompatibleSchema("Schema compatibility strategy is ALWAYS_INCOMPATIBLE")


def _check_avro(existing: Sequence[SchemaData], new: SchemaData, strategy: Strategy) -> None:
    try:
        olds = [avro_of(each) for each in existing]
        parsed = avro_of(new)
    except AvroSchemaError as error:
        text = f"org.apache.avro.SchemaParseException: {error}"
        raise IncompatibleSchema(text) from None
    newest_first = olds[::-1] if strategy.transitive else olds[-1:]
    for old in newest_first:
        if not strategy.reads_old and not strategy.read_by_old:
            raise _unreadable(old, parsed, strategy)
        if strategy.read_by_old and not can_read(parsed, old):
            raise _unreadable(parsed, old, strategy)
        if strategy.reads_old and not can_read(old, parsed):
            raise _unreadable(old, parsed, strategy)


def _unreadable(writer: AvroSchema, reader: AvroSchema, strategy: Strategy) -> IncompatibleSchema:
    return IncompatibleSchema(
        f"Error during schema compatibility check with strategy {strategy.name}: "
        "org.apache.avro.SchemaValidationException: Unable to read schema: \n"
        f"{pretty(writer.source)}\nusing schema:\n{pretty(reader.source)}"
    )


def _check_json(existing: SchemaData, new: SchemaData, strategy: Strategy) -> None:
    """A definition in the old JSON Schema form may replace any other, and be replaced by any."""
    old_is_avro, new_is_avro = _is_avro(existing), _is_avro(new)
    if old_is_avro and new_is_avro:
        _check_avro([existing], new, strategy)
        return
    old_form, old_id = old_json_id(existing)
    new_form, new_id = old_json_id(new)
    if not old_is_avro and not old_form:
        return
    if not new_is_avro and not new_form:
        raise IncompatibleSchema(_UNKNOWN_FORMAT)
    if not old_is_avro and not new_is_avro and (old_id is None or old_id != new_id):
        old_text, new_text = (each.data.decode("utf-8", "replace") for each in (existing, new))
        raise IncompatibleSchema(f"Incompatible Schema from {old_text} + to {new_text}")


def _is_avro(schema: SchemaData) -> bool:
    try:
        avro_of(schema)
    except AvroSchemaError:
        return False
    return True


def _check_pairs(existing: Sequence[SchemaData], new: SchemaData, strategy: Strategy) -> None:
    to = split_key_value(new)
    olds = [split_key_value(each) for each in existing]
    for old in olds:
        if old.key.type is not to.key.type or old.value.type is not to.value.type:
            raise IncompatibleSchema(
                "Key schemas or Value schemas are different schema type, from key schema type is "
                f"{old.key.type.name} and to key schema is {to.key.type.name}, from value schema "
                f"is {old.value.type.name} and to value schema is {to.value.type.name}"
            )
    _check([old.key for old in olds], to.key, strategy)
    _check([old.value for old in olds], to.value, strategy)


def _check_native(existing: Sequence[SchemaData], new: SchemaData, strategy: Strategy) -> None:
    message = root_message(new.data)
    for each in existing:
        old = root_message(each.data)
        if not strategy.reads_old and not strategy.read_by_old:
            raise IncompatibleSchema("Unknown SchemaCompatibilityStrategy.")
        if old != message:
            raise IncompatibleSchema(
                f"Protobuf root message change is not allowed under the '{strategy.name}' "
                f"strategy. Original message name: '{old}', new message name: '{message}'."
            )
