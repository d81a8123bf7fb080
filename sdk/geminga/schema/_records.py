"""Records without a class, as read by AUTO_CONSUME (spec SDK-41; Java's GenericRecord)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from geminga_protocol.schema_type import SchemaType


class GenericRecord(Mapping[str, object]):
    """A record as a read-only mapping of its fields, with its writer's schema type. Nested records
    are dicts.
    """

    __slots__ = ("_fields", "schema_type", "schema_version")

    def __init__(
        self,
        fields: Mapping[str, object],
        schema_type: SchemaType,
        schema_version: bytes | None = None,
    ) -> None:
        self._fields = fields
        self.schema_type = schema_type
        self.schema_version = schema_version

    def __repr__(self) -> str:
        return f"GenericRecord({self._fields!r})"

    def __getitem__(self, name: str) -> object:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)
