"""Records and their fields, with the names of the official client (`pulsar.schema.definition`).

A record's class describes an Avro schema; each of its values is checked when it is set.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from enum import Enum, EnumMeta
from typing import Any

Kinds = type | tuple[type, ...]
Definition = str | dict[str, Any]
"""An Avro schema: a type's name, or its description."""
_OWN = ("_default", "_required", "_required_default")


def _name_of(kind: object) -> str:
    return str(getattr(kind, "__name__", kind))


def _mismatch(what: str, name: str, value: object, expected: object) -> TypeError:
    return TypeError(f"{what} {name!r} must be {_name_of(expected)}, not {type(value).__name__}")


class RecordMeta(type):
    """Collects the fields of a record's class, in their order."""

    def __new__(cls, name: str, parents: tuple[type, ...], namespace: dict[str, Any]) -> RecordMeta:
        """The class, with `_fields`."""
        if name != "Record":
            namespace["_fields"] = _fields_of(namespace)
            namespace["_required"] = False
        return super().__new__(cls, name, parents, namespace)


def _fields_of(namespace: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in namespace.items():
        if isinstance(value, EnumMeta):
            value = CustomEnum(value)
        elif type(value) is RecordMeta:
            value = value()
        if isinstance(value, Record | Field):
            fields[name] = value
    return fields


class Record(metaclass=RecordMeta):
    """Base of a program's records. `_avro_namespace` is the schema's namespace; with
    `_sorted_fields` the schema has the fields by name.
    """

    _avro_namespace: str | None = None
    _sorted_fields = False
    _fields: Mapping[str, Any] = {}
    _required = False
    _required_default = False
    _default: Any = None

    def __init__(
        self,
        default: Any = None,
        required_default: bool = False,
        required: bool = False,
        *args: object,
        **kwargs: Any,
    ) -> None:
        self._required_default = required_default
        self._default = default
        self._required = required
        for name, field in self._fields.items():
            if name in kwargs:
                setattr(self, name, _nested(field, kwargs[name]))
            elif isinstance(field, Record):
                setattr(self, name, field)
            else:
                object.__setattr__(self, name, field.default())

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """The Avro schema."""
        found = cls.schema_info(set())
        assert isinstance(found, dict), "a name is returned for a record that came before only"
        return found

    @classmethod
    def schema_info(cls, defined_names: set[str]) -> Definition:
        """The Avro schema; a record in `defined_names` is only named."""
        namespace = cls._avro_namespace
        full_name = cls.__name__ if namespace is None else f"{namespace}.{cls.__name__}"
        if full_name in defined_names:
            return full_name
        defined_names.add(full_name)
        made: dict[str, Any] = {"type": "record", "name": cls.__name__}
        if namespace is not None:
            made["namespace"] = namespace
        names = sorted(cls._fields) if cls._sorted_fields else cls._fields
        made["fields"] = [_described(name, cls._fields[name], defined_names) for name in names]
        return made

    def __setattr__(self, key: str, value: Any) -> None:
        if key not in _OWN:
            if key not in self._fields:
                raise AttributeError(f"{type(self).__name__} has no field {key!r}")
            value = self._fields[key].validate_type(key, value)
        object.__setattr__(self, key, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and all(
            getattr(self, name) == getattr(other, name, None) for name in self._fields
        )

    # Its values change. The types of `object` have no way to say so.
    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return str(self.__dict__)

    def type(self) -> str:
        """The class's name."""
        return type(self).__name__

    def python_type(self) -> Kinds:
        """The class."""
        return type(self)

    def validate_type(self, name: str, val: Any) -> Any:
        """The value of a field of this record's class. Raises TypeError."""
        if val is None and not self._required:
            return self.default()
        if not isinstance(val, type(self)):
            raise _mismatch("the record", name, val, type(self))
        return val

    def default(self) -> Any:
        """The default, or None."""
        return self._default

    def required_default(self) -> bool:
        """Whether the schema has the default."""
        return self._required_default


def _described(name: str, field: Any, defined_names: set[str]) -> dict[str, Any]:
    kind = field.schema_info(defined_names)
    made: dict[str, Any] = {"name": name}
    if field.required_default():
        default = field.default()
        made["default"] = default.name if isinstance(default, Enum) else default
    made["type"] = kind if field._required else ["null", kind]
    return made


def _nested(field: Any, value: Any) -> Any:
    """A value with its mappings made into records, where the field has records."""
    if isinstance(field, Record) and isinstance(value, dict):
        return _made_like(field, value)
    if isinstance(field, Array) and isinstance(field.array_type, Record) and value:
        return [_nested(field.array_type, each) for each in value]
    if isinstance(field, Map) and isinstance(field.value_type, Record) and value:
        return {key: _nested(field.value_type, each) for key, each in value.items()}
    return value


def _made_like(record: Record, values: Mapping[str, Any]) -> Record:
    made = copy.copy(record)
    type(made).__init__(made, **values)
    return made


class Field:
    """A field of a record. With `required` it can't be null; with `required_default` the schema has
    the default.
    """

    _kind = ""
    _python: Kinds = object

    def __init__(
        self, default: Any = None, required: bool = False, required_default: bool = False
    ) -> None:
        self._required = required
        self._default: Any = None
        self._required_default = required_default
        if default is not None:
            self._default = self.validate_type("default", default)

    def type(self) -> str:
        """The Avro type's name."""
        return self._kind

    def python_type(self) -> Kinds:
        """The types of its values."""
        return self._python

    def validate_type(self, name: str, val: Any) -> Any:
        """The value to be stored. Raises TypeError."""
        if val is None and not self._required:
            return self.default()
        if not isinstance(val, self.python_type()):
            raise _mismatch("the field", name, val, self.python_type())
        return val

    def schema(self) -> Definition:
        """The Avro type."""
        return self.schema_info(set())

    def schema_info(self, defined_names: set[str]) -> Definition:
        """The Avro type; one in `defined_names` is only named."""
        return self.type()

    def default(self) -> Any:
        """The default, or None."""
        return self._default

    def required_default(self) -> bool:
        """Whether the schema has the default."""
        return self._required_default


class Null(Field):
    """Always None."""

    _kind, _python = "null", type(None)

    def validate_type(self, name: str, val: Any) -> Any:
        """None. Raises TypeError."""
        if val is not None:
            raise _mismatch("the field", name, val, None)
        return val


class Boolean(Field):
    """A bool, False by default."""

    _kind, _python = "boolean", bool

    def default(self) -> Any:
        """The default, or False."""
        return False if self._default is None else self._default


class Integer(Field):
    """A 32-bit integer."""

    _kind, _python = "int", int


class Long(Field):
    """A 64-bit integer."""

    _kind, _python = "long", int


class Float(Field):
    """A 32-bit float."""

    _kind, _python = "float", (float, int)


class Double(Field):
    """A 64-bit float."""

    _kind, _python = "double", (float, int)


class Bytes(Field):
    """Bytes; a text is encoded."""

    _kind, _python = "bytes", (bytes, str)

    def validate_type(self, name: str, val: Any) -> Any:
        """Bytes; any other value is left for the encoder to refuse."""
        return val.encode() if isinstance(val, str) else val


class String(Field):
    """A text; bytes are decoded."""

    _kind, _python = "string", (str, bytes)

    def validate_type(self, name: str, val: Any) -> Any:
        """A text. Raises TypeError."""
        found = super().validate_type(name, val)
        return found.decode() if isinstance(found, bytes) else found


class CustomEnum(Field):
    """A member of an Enum, also given by its name or its number."""

    _kind = "enum"

    def __init__(
        self,
        enum_type: EnumMeta,
        default: Any = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        if not isinstance(enum_type, EnumMeta):
            raise TypeError(f"{_name_of(enum_type)} is not an Enum")
        self.enum_type = enum_type
        members: list[Any] = list(enum_type)
        self.values: dict[Any, Any] = {each.value: each for each in members}
        super().__init__(default, required, required_default)

    def python_type(self) -> Kinds:
        """The Enum."""
        return self.enum_type

    def validate_type(self, name: str, val: Any) -> Any:
        """The member. Raises TypeError."""
        if val is None or isinstance(val, self.enum_type):
            return val
        known: Mapping[Any, Any] = self.values
        if type(val) is str:
            known = self.enum_type.__members__
        if type(val) not in (str, int) or val not in known:
            raise TypeError(f"the field {name!r} must be one of {list(known)}, not {val!r}")
        return known[val]

    def schema_info(self, defined_names: set[str]) -> Definition:
        """The Avro enum."""
        name = self.enum_type.__name__
        if name in defined_names:
            return name
        defined_names.add(name)
        return {
            "type": "enum",
            "name": name,
            "symbols": [each.name for each in self.values.values()],
        }


class Array(Field):
    """A list of one type."""

    _kind, _python = "array", list

    def __init__(
        self,
        array_type: Any,
        default: Any = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        self.array_type = _checked_part(array_type)
        super().__init__(default, required, required_default)

    def validate_type(self, name: str, val: Any) -> Any:
        """The list. Raises TypeError."""
        if val is None:
            return None
        for each in super().validate_type(name, val):
            if not isinstance(each, self.array_type.python_type()):
                raise _mismatch("each item of", name, each, self.array_type.type())
        return val

    def schema_info(self, defined_names: set[str]) -> Definition:
        """The Avro array."""
        return {"type": "array", "items": self.array_type.schema_info(defined_names)}


class Map(Field):
    """A mapping of texts to one type."""

    _kind, _python = "map", dict

    def __init__(
        self,
        value_type: Any,
        default: Any = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        self.value_type = _checked_part(value_type)
        super().__init__(default, required, required_default)

    def validate_type(self, name: str, val: Any) -> Any:
        """The mapping. Raises TypeError."""
        if val is None:
            return None
        for key, each in super().validate_type(name, val).items():
            if not isinstance(key, str):
                raise _mismatch("each key of", name, key, str)
            if not isinstance(each, self.value_type.python_type()):
                raise _mismatch("each value of", name, each, self.value_type.type())
        return val

    def schema_info(self, defined_names: set[str]) -> Definition:
        """The Avro map."""
        return {"type": "map", "values": self.value_type.schema_info(defined_names)}


def _checked_part(part: Any) -> Any:
    if not isinstance(part, Record | Field) and not isinstance(part, RecordMeta):
        raise TypeError(f"{_name_of(part)} is not a Record or a Field")
    return part
