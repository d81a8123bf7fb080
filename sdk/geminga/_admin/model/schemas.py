"""Schemas as the admin REST has them."""

from __future__ import annotations

from msgspec import field

from geminga._admin.model.base import Model


class PostSchemaPayload(Model):
    """A schema to be uploaded: `type` as in "AVRO", `schema` its definition."""

    type: str
    schema: str = ""
    properties: dict[str, str] = field(default_factory=dict)


class SchemaVersion(Model):
    """The version of a schema."""

    version: int = -1


class PostSchemaResponse(Model):
    """The answer to an upload."""

    version: int | SchemaVersion = -1


class GetSchemaResponse(Model):
    """A version of a topic's schema."""

    version: int = -1
    type: str = ""
    timestamp: int = 0
    data: str = ""
    properties: dict[str, str] | None = None


class GetAllVersionsSchemaResponse(Model):
    """All versions of a topic's schema."""

    get_schema_responses: list[GetSchemaResponse] = field(default_factory=list)


class IsCompatibilityResponse(Model):
    """Whether a schema would be taken, and by what rule."""

    is_compatibility: bool = field(default=False, name="compatibility")
    schema_compatibility_strategy: str | None = None


class SchemaMetadataEntry(Model):
    """Where a version of a schema is stored."""

    ledger_id: int = -1
    entry_id: int = -1
    version: int = -1
    timestamp: int = 0
    hash_code: str | None = None


class SchemaMetadata(Model):
    """Where the versions of a schema are stored."""

    info: SchemaMetadataEntry | None = None
    index: list[SchemaMetadataEntry] = field(default_factory=list)
