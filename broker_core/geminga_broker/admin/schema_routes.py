"""Schemas of topics over REST (spec BR-51, OP-03; Apache's `SchemasResource`)."""

from __future__ import annotations

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.answers import (
    Compatibility,
    PostedSchema,
    SchemaAnswer,
    SchemaAnswers,
    SchemaMetadata,
    SchemaPlace,
    SchemaVersion,
)
from geminga_broker.admin.namespaces.routes import require_namespace
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.schema.key_value import key_value_from_text, key_value_to_text
from geminga_broker.schema.model import (
    IncompatibleSchema,
    InvalidSchemaData,
    SchemaData,
    VersionedSchema,
)
from geminga_broker.schema.registry import SchemaRegistry
from geminga_broker.schema.topic_schemas import TopicSchemas
from geminga_protocol.pb.schema_storage_pb2 import IndexEntry
from geminga_protocol.schema_type import SchemaType

NOT_FOUND = "Schema not found"
_BASE = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"


class PostSchemaPayload(Struct):
    """A posted schema; for KEY_VALUE it is `{"key": ..., "value": ...}`."""

    type: str = ""
    schema: str | None = None
    properties: dict[str, str] | None = None


def routes(schemas: TopicSchemas, namespaces: Namespaces) -> list[Route]:
    """All routes of the family, the same for persistent and non-persistent topics."""
    return [*_reading(schemas.registry), *_writing(schemas, namespaces)]


def _reading(registry: SchemaRegistry) -> list[Route]:
    async def latest(request: Request) -> Response:
        return rest.ok(_json_of(await registry.latest(_schema_id(request))), SchemaAnswer)

    async def version(request: Request) -> Response:
        text = rest.parameter(request, "version")
        try:
            number = int(text)
        except ValueError:
            raise rest.RestError(400, f"version is not a number: {text}") from None
        return rest.ok(_json_of(await registry.get(_schema_id(request), number)), SchemaAnswer)

    async def versions(request: Request) -> Response:
        found = await registry.versions(_schema_id(request))
        return rest.ok({"getSchemaResponses": [_json_of(each) for each in found]}, SchemaAnswers)

    async def metadata(request: Request) -> Response:
        locator = await registry.storage.locate(_schema_id(request))
        if locator is None:
            return Response()
        index = [_place(entry) for entry in locator.value.index]
        return rest.ok({"info": _place(locator.value.info), "index": index}, SchemaMetadata)

    return [
        rest.route("GET", f"{_BASE}/schema", latest),
        rest.route("GET", f"{_BASE}/schema/{{version}}", version),
        rest.route("GET", f"{_BASE}/schemas", versions),
        rest.route("GET", f"{_BASE}/metadata", metadata),
    ]


def _writing(schemas: TopicSchemas, namespaces: Namespaces) -> list[Route]:
    async def post(request: Request) -> Response:
        schema = await _payload(request)
        topic = rest.topic_of(request, "persistent")
        await require_namespace(namespaces, topic.namespace)
        strategy = (await schemas.policies(topic)).strategy
        try:
            number = await schemas.registry.register(topic.schema_name, schema, strategy)
        except IncompatibleSchema as error:
            raise rest.RestError(409, str(error)) from None
        except InvalidSchemaData as error:
            raise rest.RestError(422, str(error)) from None
        return rest.ok({"version": {"version": number}}, PostedSchema)

    async def compatibility(request: Request) -> Response:
        schema = await _payload(request)
        topic = rest.topic_of(request, "persistent")
        await require_namespace(namespaces, topic.namespace)
        strategy = (await schemas.policies(topic)).strategy
        try:
            await schemas.registry.check(topic.schema_name, schema, strategy)
        except InvalidSchemaData as error:
            raise rest.RestError(400, str(error)) from None
        except IncompatibleSchema as error:
            # As in Apache.
            raise rest.RestError(500, str(error)) from None
        told: Compatibility = {
            "schemaCompatibilityStrategy": strategy.name,
            "compatibility": True,
        }
        return rest.accepted(told, Compatibility)

    async def find(request: Request) -> Response:
        schema = await _payload(request)
        found = await schemas.registry.number_of(_schema_id(request), schema)
        return rest.ok({"version": -1 if found is None else found}, SchemaVersion)

    async def delete(request: Request) -> Response:
        schema_id = _schema_id(request)
        if rest.flag(request, "force"):
            await schemas.registry.delete(schema_id)
            return rest.ok({"version": -1}, SchemaVersion)
        await require_namespace(namespaces, rest.topic_of(request, "persistent").namespace)
        number = await schemas.registry.mark_deleted(schema_id, _user(request))
        return rest.ok({"version": number}, SchemaVersion)

    return [
        rest.route("POST", f"{_BASE}/schema", post),
        rest.route("POST", f"{_BASE}/compatibility", compatibility),
        rest.route("POST", f"{_BASE}/version", find),
        rest.route("DELETE", f"{_BASE}/schema", delete),
    ]


def _schema_id(request: Request) -> str:
    return rest.topic_of(request, "persistent").schema_name


def _user(request: Request) -> str:
    caller = getattr(request.state, "caller", None)
    return str(getattr(caller, "role", None) or "")


async def _payload(request: Request) -> SchemaData:
    """Raises RestError 422 for an invalid schema."""
    payload = await rest.required_body(request, PostSchemaPayload)
    if payload.schema is None:
        raise rest.RestError(422, "schema is missing")
    try:
        kind = SchemaType[payload.type]
    except KeyError:
        raise rest.RestError(422, f"type: unknown schema type: {payload.type}") from None
    try:
        pair = kind is SchemaType.KEY_VALUE
        data = key_value_from_text(payload.schema) if pair else payload.schema.encode()
    except InvalidSchemaData as error:
        raise rest.RestError(422, f"schema: {error}") from None
    return SchemaData(kind, data, rest.without_nulls(payload.properties) or {}, _user(request))


def _json_of(found: VersionedSchema | None) -> SchemaAnswer:
    """Raises RestError 404 if there is none."""
    if found is None:
        raise rest.RestError(404, NOT_FOUND)
    schema = found.schema
    pair = schema.type is SchemaType.KEY_VALUE
    return {
        "version": found.number,
        "type": schema.type.name,
        "timestamp": schema.timestamp_ms,
        "data": key_value_to_text(schema) if pair else schema.data.decode("utf-8", "replace"),
        "properties": dict(schema.props),
    }


def _place(entry: IndexEntry) -> SchemaPlace:
    position = entry.position
    return {
        "ledgerId": position.ledgerId,
        "entryId": position.entryId,
        "version": entry.version,
    }
