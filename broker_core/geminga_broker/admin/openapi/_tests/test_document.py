"""The description of the REST interface (spec OP-03)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import trio

from geminga_broker._tests.asgi import request
from geminga_broker._tests.wire import open_broker
from geminga_broker.admin._tests.test_guard import call, secured
from geminga_broker.admin.app import create_app, routes_of
from geminga_broker.admin.openapi import document as documents
from geminga_broker.admin.openapi.document import NOT_SET
from geminga_broker.admin.openapi.routes import PARTS

TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"


async def described(name: str = "openapi.json") -> dict[str, Any]:
    async with open_broker() as broker:
        reply = await request(create_app(broker.service), "GET", f"/admin/v2/{name}")
    assert reply.status == 200
    found: dict[str, Any] = json.loads(reply.body)
    return found


def _shape(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


async def test_each_route_has_its_operation_and_each_name_its_meaning() -> None:
    async with open_broker() as broker:
        ours = {
            (_shape(route.path), method)
            for route in routes_of(broker.service)
            for method in (route.methods or set()) - {"HEAD"}
        }
    found = await described()
    paths = found["paths"]
    assert {(_shape(path), verb.upper()) for path in paths for verb in paths[path]} == ours
    assert len({_shape(path) for path in paths}) == len(paths)
    operations = [each for path in paths.values() for each in path.values()]
    assert len({each["operationId"] for each in operations}) == len(operations)
    for path, verbs in paths.items():
        for each in verbs.values():
            names = [found["components"]["parameters"][_last(p)] for p in each["parameters"]]
            assert [p["name"] for p in names if p["in"] == "path"] == re.findall(r"{(.*?)}", path)
            assert each["summary"]
            assert each["description"]
            assert set(each["responses"]) - {"default"}, path
    for reference in re.findall(r'"\$ref": "([^"]*)"', json.dumps(found)):
        family, name = reference.removeprefix("#/components/").split("/")
        assert name in found["components"][family]


def _last(reference: dict[str, str]) -> str:
    return reference["$ref"].rpartition("/")[2]


@pytest.mark.slow
async def test_an_operation_says_what_its_handler_does() -> None:
    found = await described()
    post = found["paths"][TOPIC + "/retention"]["post"]
    body = post["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/RetentionPolicies"}
    assert "retentionSizeInMB" in found["components"]["schemas"]["RetentionPolicies"]["properties"]
    assert {_last(each) for each in post["parameters"]} >= {"isGlobal", "authoritative"}
    assert post["responses"].keys() >= {"204", "307"}
    get = found["paths"][TOPIC + "/retention"]["get"]
    assert get["summary"] == "Get retention of a topic"
    assert get["description"] == "Needs, with authorization: topic policy: READ RETENTION."
    assert "requestBody" not in get
    skip = found["paths"][TOPIC + "/subscription/{subscription}/skip/{count}"]["post"]
    count = found["components"]["parameters"][_last(skip["parameters"][4])]
    assert count == {
        "name": "count", "in": "path", "required": True, "schema": {"type": "integer"}
    }  # fmt: skip


@pytest.mark.slow
async def test_every_answer_in_json_has_a_schema() -> None:
    found = await described()
    without, empty = [], 0
    for path, verbs in found["paths"].items():
        for verb, each in verbs.items():
            for status, reference in each["responses"].items():
                if status.startswith("2"):
                    response = found["components"]["responses"][_last(reference)]
                    media = response.get("content", {}).get("application/json")
                    empty += response["description"].endswith(NOT_SET)
                    if media is not None and not media.get("schema"):
                        without.append(f"{verb} {path} {status}")
    assert without == []
    assert empty > 50


async def test_schemas_have_the_form_that_generators_read() -> None:
    found = await described()
    for name, schema in found["components"]["schemas"].items():
        assert name[0].isalpha()
        for field, each in schema.get("properties", {}).items():
            told = f"{name}.{field}: {each}"
            assert each.get("default", 0) not in (None, {}, []), told
            assert {"type": "null"} not in each.get("anyOf", ()) or "$ref" in str(each), told
    bucket = found["components"]["schemas"]["OffloadPolicies"]["properties"]
    assert bucket["managedLedgerOffloadBucket"] == {"type": ["string", "null"]}
    priority = bucket["managedLedgerOffloadedReadPriority"]
    assert priority == {"enum": ["BOOKKEEPER_FIRST", "TIERED_STORAGE_FIRST", None]}
    assert bucket["managedLedgerExtraConfigurations"]["type"] == ["object", "null"]
    ranges = found["components"]["schemas"]["ConsumerStats"]["properties"]["keyHashRangeArrays"]
    assert ranges["items"]["items"] == {"type": "integer"}


@pytest.mark.slow
async def test_empty_answers_and_bare_texts_are_described() -> None:
    found = await described()
    namespace = found["paths"]["/admin/v2/namespaces/{tenant}/{namespace}/retention"]["get"]
    unset = found["components"]["responses"][_last(namespace["responses"]["200"])]
    assert unset["description"] == f"OK; {NOT_SET}"
    group = found["paths"]["/admin/v2/namespaces/{tenant}/{namespace}/antiAffinity"]["get"]
    assert group["responses"].keys() >= {"200", "204"}
    bare = found["components"]["responses"][_last(group["responses"]["200"])]
    schema = bare["content"]["application/json"]["schema"]
    assert (schema["type"], schema["contentMediaType"]) == ("string", "text/plain")


@pytest.mark.slow
async def test_parts_have_apaches_names() -> None:
    for name, begins in PARTS.items():
        paths = (await described(name))["paths"]
        assert paths
        assert all(path.startswith(begins) for path in paths)
    assert (
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"
        in (await described("swaggerlookup.json"))["paths"]
    )


async def test_every_authenticated_role_may_read_it() -> None:
    async with secured() as (_, app):
        path = "/admin/v2/openapi.json"
        statuses = [(await call(app, "GET", path, role)).status for role in (None, "nobody")]
    assert statuses == [401, 200]


@pytest.mark.slow
async def test_it_is_made_once_and_not_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    document = documents.document

    def counted(*given: Any) -> Any:
        nonlocal made
        made += 1
        return document(*given)

    monkeypatch.setattr(documents, "document", counted)
    async with open_broker() as broker:
        app = create_app(broker.service)
        assert made == 0
        async with trio.open_nursery() as nursery:
            for name in PARTS:
                nursery.start_soon(request, app, "GET", f"/admin/v2/{name}")
    assert made == 1
