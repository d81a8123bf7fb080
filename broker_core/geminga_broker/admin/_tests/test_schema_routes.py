"""Schemas and the policies about them over REST."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.types import ASGIApp

from geminga_broker._tests.wire import open_broker
from geminga_broker.admin._tests.test_guard import call, secured
from geminga_broker.admin.app import create_app

TOPIC = "/admin/v2/schemas/public/default/a%20b"
SPACE = "/admin/v2/namespaces/public/default"


class Admin:
    """Requests to one broker."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def ask(self, method: str, path: str, body: object = None, query: str = "") -> object:
        """The status and the answer's JSON, its text where it is none, None for nothing."""
        answer = await call(self._app, method, path, None, body=body, query=query)
        if not answer.body:
            return answer.status, None
        try:
            return answer.status, json.loads(answer.body)
        except ValueError:
            return answer.status, answer.body.decode()

    async def post(self, path: str, *fields: str, kind: str = "AVRO") -> tuple[int, object]:
        found = await self.ask("POST", f"{TOPIC}/{path}", payload(*fields, kind=kind))
        assert isinstance(found, tuple)
        return found


def payload(*fields: str, kind: str = "AVRO") -> dict[str, object]:
    listed = [{"name": name, "type": "int"} for name in fields]
    text = json.dumps({"type": "record", "name": "R", "fields": listed})
    return {"type": kind, "schema": text, "properties": {"p": "q"}}


@asynccontextmanager
async def admin() -> AsyncIterator[Admin]:
    async with open_broker() as broker:
        yield Admin(create_app(broker.service))


async def test_versions() -> None:
    async with admin() as rest:
        missing = 404, {"reason": "Schema not found"}
        assert await rest.ask("GET", f"{TOPIC}/schema") == missing
        assert await rest.ask("GET", f"{TOPIC}/schemas") == (200, {"getSchemaResponses": []})
        assert await rest.ask("GET", f"{TOPIC}/metadata") == (200, None)
        await rest.ask("PUT", f"{SPACE}/schemaCompatibilityStrategy", "BACKWARD")
        assert await rest.post("schema", "x", "y") == (200, {"version": {"version": 0}})
        assert await rest.post("schema", "x") == (200, {"version": {"version": 1}})
        found = await rest.ask("GET", f"{TOPIC}/schema/0")
        assert isinstance(found, tuple)
        assert found[1].pop("timestamp") > 0
        data = payload("x", "y")["schema"]
        told = {"version": 0, "type": "AVRO", "data": data, "properties": {"p": "q"}}
        assert found == (200, told)
        assert await rest.ask("GET", f"{TOPIC}/schema/7") == missing
        assert await rest.ask("GET", f"{TOPIC}/schema/x") == (
            400,
            {"reason": "version is not a number: x"},
        )
        assert await rest.post("version", "x") == (200, {"version": 1})
        assert await rest.post("version", "z") == (200, {"version": -1})
        metadata = await rest.ask("GET", f"{TOPIC}/metadata")
        assert isinstance(metadata, tuple)
        assert [each["version"] for each in metadata[1]["index"]] == [0, 1]
        assert metadata[1]["info"] == metadata[1]["index"][1]


async def test_compatibility() -> None:
    async with admin() as rest:
        yes = 202, {"schemaCompatibilityStrategy": "FULL", "compatibility": True}
        assert await rest.post("compatibility", "x") == yes
        await rest.post("schema", "x")
        status, body = await rest.post("compatibility", "x", "y")
        assert status == 500
        assert "Unable to read schema" in str(body)
        assert (await rest.post("schema", "x", "y"))[0] == 409
        reason = {"reason": "Incompatible schema: exists schema type AVRO, new schema type JSON"}
        assert await rest.post("schema", "x", kind="JSON") == (409, reason)


@pytest.mark.parametrize(
    "text", ['{"type":"record","name":"R"}', "{", '{"type":"enum","name":"E"}']
)
async def test_invalid_schemas_are_the_clients_error(text: str) -> None:
    """Apache's broker answers 500."""
    async with admin() as rest:
        body = {"type": "AVRO", "schema": text, "properties": {}}
        for _ in range(2):
            answer = await rest.ask("POST", f"{TOPIC}/compatibility", body)
            reason = {"reason": "Invalid schema definition data for AVRO schema"}
            assert answer == (400, reason)
            await rest.post("schema", "x")


async def test_schema_ledgers_are_in_the_topics_internal_stats() -> None:
    async with admin() as rest:
        topic = "/admin/v2/persistent/public/default/a%20b"
        await rest.ask("PUT", topic)
        await rest.post("schema", "x")
        found = await rest.ask("GET", f"{topic}/internalStats")
        assert isinstance(found, tuple)
        [ledger] = found[1]["schemaLedgers"]
        assert ledger["entries"] == 1
        assert ledger["size"] > 100


async def test_deleting() -> None:
    async with admin() as rest:
        await rest.post("schema", "x")
        assert await rest.ask("DELETE", f"{TOPIC}/schema") == (200, {"version": 1})
        assert (await rest.post("schema", "q"))[1] == {"version": {"version": 2}}
        forced = await rest.ask("DELETE", f"{TOPIC}/schema", query="force=true")
        assert forced == (200, {"version": -1})
        assert (await rest.post("schema", "q"))[1] == {"version": {"version": 0}}


async def test_schemas_are_deleted_with_topics_and_namespaces() -> None:
    async with admin() as rest:
        topic = "/admin/v2/persistent/public/default/a%20b"
        await rest.ask("PUT", f"{topic}/partitions", 2)
        await rest.post("schema", "x")
        assert await rest.ask("DELETE", f"{topic}/partitions") == (204, None)
        assert await rest.post("schema", "q") == (200, {"version": {"version": 0}})
        space, path = "/admin/v2/namespaces/public/n", "/admin/v2/schemas/public/n/t/schema"
        await rest.ask("PUT", space)
        assert await rest.ask("POST", path, payload("x")) == (200, {"version": {"version": 0}})
        assert await rest.ask("DELETE", space) == (204, None)
        await rest.ask("PUT", space)
        assert await rest.ask("GET", path) == (404, {"reason": "Schema not found"})


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"type": "AVRO", "schema": "{"}, 422, "Invalid schema definition data for AVRO schema"),
        ({"type": "WHAT", "schema": ""}, 422, "type: unknown schema type: WHAT"),
        ({"type": "AVRO"}, 422, "schema is missing"),
        ({"type": "KEY_VALUE", "schema": "3"}, 422, "definition data for KEY_VALUE"),
        ({"type": "KEY_VALUE", "schema": "{}"}, 422, "no key and value"),
        (None, 400, "cannot be empty"),
    ],
)
async def test_what_can_t_be_registered(body: object, status: int, text: str) -> None:
    async with admin() as rest:
        found = await rest.ask("POST", f"{TOPIC}/schema", body)
        assert isinstance(found, tuple)
        assert found[0] == status
        assert text in str(found[1])


async def test_a_pair() -> None:
    async with admin() as rest:
        value = json.loads(str(payload("x")["schema"]))
        text = json.dumps({"key": "", "value": value}, separators=(",", ":"))
        props = {"key.schema.type": "STRING", "value.schema.type": "AVRO"}
        body = {"type": "KEY_VALUE", "schema": text, "properties": props}
        await rest.ask("POST", f"{TOPIC}/schema", body)
        found = await rest.ask("GET", f"{TOPIC}/schema")
        assert isinstance(found, tuple)
        assert found[1]["data"] == text
        assert await rest.ask("POST", f"{TOPIC}/version", body) == (200, {"version": 0})


async def test_policies_of_a_namespace() -> None:
    async with admin() as rest:
        for path, unset, value, bad in (
            ("schemaCompatibilityStrategy", (200, "UNDEFINED"), "FORWARD", "NOPE"),
            ("schemaAutoUpdateCompatibilityStrategy", (204, None), "Backward", "FORWARD"),
            ("isAllowAutoUpdateSchema", (200, True), False, "x"),
            ("schemaValidationEnforced", (200, False), True, "x"),
        ):
            method = "POST" if isinstance(value, bool) else "PUT"
            url = f"{SPACE}/{path}"
            assert await rest.ask("GET", url) == unset
            refused = await rest.ask(method, url, bad)
            assert isinstance(refused, tuple)
            assert refused[0] == 400
            assert await rest.ask(method, url, value) == (204, None)
            assert await rest.ask("GET", url) == (200, value)
        assert await rest.ask("PUT", f"{SPACE}/schemaCompatibilityStrategy") == (204, None)
        unset = await rest.ask("GET", f"{SPACE}/schemaCompatibilityStrategy")
        assert unset == (200, "UNDEFINED")
        status = await rest.ask("PUT", "/admin/v2/namespaces/public/no/schemaCompatibilityStrategy")
        assert isinstance(status, tuple)
        assert status[0] == 404


async def test_policies_of_a_topic() -> None:
    topic = "/admin/v2/persistent/public/default/t"
    async with admin() as rest:
        await rest.ask("PUT", topic)
        strategy = f"{topic}/schemaCompatibilityStrategy"
        assert await rest.ask("GET", strategy) == (200, None)
        assert await rest.ask("GET", strategy, query="applied=true") == (200, "FULL")
        assert await rest.ask("PUT", strategy, "FORWARD") == (204, None)
        assert await rest.ask("GET", strategy) == (200, "FORWARD")
        assert await rest.ask("DELETE", strategy) == (204, None)
        assert await rest.ask("GET", strategy) == (200, None)
        enforced = f"{topic}/schemaValidationEnforced"
        assert await rest.ask("GET", enforced) == (200, False)
        await rest.ask("POST", f"{SPACE}/schemaValidationEnforced", True)
        assert await rest.ask("GET", enforced, query="applied=true") == (200, True)
        assert await rest.ask("POST", enforced, False) == (204, None)
        assert await rest.ask("GET", enforced, query="applied=true") == (200, False)


async def test_the_registering_role_is_stored() -> None:
    async with secured() as (service, app):
        path = "/admin/v2/schemas/t/n/top/schema"
        assert (await call(app, "POST", path, "cons", body=payload("x"))).status == 401
        assert (await call(app, "POST", path, "prod", body=payload("x"))).status == 200
        found = await service.schemas.registry.latest("t/n/top")
        assert found is not None
        assert found.schema.user == "prod"
        assert (await call(app, "DELETE", path, "prod")).status == 401
        assert (await call(app, "DELETE", path, "tadmin")).status == 200
