"""What Apache's broker answered to recorded calls, which ours answers too, is as the description of
our REST interface says: each answer fits its schema, and has no member that the schema lacks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import jsonschema_rs
import pytest
import trio

from compat_tests.clients import (
    cluster_calls,
    namespace_calls,
    rest_calls,
    topic_calls,
)
from compat_tests.clients.rest_calls import ANY, EMPTY, Keys, Members, Text
from geminga_broker._tests.asgi import request
from geminga_broker._tests.wire import open_broker
from geminga_broker.admin.app import create_app

Object: TypeAlias = dict[str, Any]

CALLS = (
    *rest_calls.CALLS, *cluster_calls.CALLS, *namespace_calls.CALLS, *topic_calls.CALLS,
)  # fmt: skip


class Recorded(NamedTuple):
    """An answer, and what the description says of it."""

    told: str
    expected: object
    response: Object

    @property
    def schema(self) -> Object:
        """Of an answer in JSON; empty if there is none."""
        found: Object = self.response.get("content", {}).get("application/json", {})
        return dict(found.get("schema", {}))


@pytest.fixture(scope="module")
def document() -> Object:
    async def read() -> bytes:
        async with open_broker() as broker:
            app = create_app(broker.service)
            return (await request(app, "GET", "/admin/v2/openapi.json")).body

    found: Object = json.loads(trio.run(read))
    return found


def recorded(document: Object) -> Iterator[Recorded]:
    """All answers that are no refusals and aren't left open."""
    paths = {re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)): path for path in document["paths"]}
    for method, called, _body, status, expected in CALLS:
        path = re.sub(r"\{\w+\}", "word", called.partition("?")[0])
        # The path with the fewest parameters is the one that is meant.
        fitting = [known for form, known in paths.items() if re.fullmatch(form, path)]
        if expected is ANY or status >= 300 or not fitting:
            continue
        verbs = document["paths"][min(fitting, key=lambda known: known.count("{"))]
        if method.lower() in verbs:
            response = verbs[method.lower()]["responses"].get(str(status), {})
            name = response.get("$ref", "").rpartition("/")[2]
            made = document["components"]["responses"].get(name, {})
            yield Recorded(f"{method} {called}", expected, made)


def closed(document: Object) -> Object:
    """Its schemas, with no room for members that they don't name."""
    found: Object = json.loads(json.dumps(document["components"]["schemas"]))
    for schema in found.values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return {"schemas": found}


def wrong_with(each: Recorded, components: Object) -> str | None:
    """What of an answer isn't as described."""
    if each.expected == EMPTY:
        is_told = "content" not in each.response or "empty" in each.response["description"]
        return None if is_told else "an empty answer isn't described"
    if isinstance(each.expected, Text):
        media = each.schema.get("contentMediaType")
        return None if media else "a bare text is said to be JSON"
    schema = {**each.schema, "components": components}
    if isinstance(each.expected, Keys):
        return _names_unknown(each.expected.names, schema)
    value = each.expected.names if isinstance(each.expected, Members) else each.expected
    try:
        jsonschema_rs.validate(schema, value)
    except jsonschema_rs.ValidationError as error:
        return f"{value!r}: {error}"
    return None if each.schema else "no schema"


def _names_unknown(names: frozenset[str], schema: Object) -> str | None:
    """Of an answer of whose members the names are recorded."""
    if isinstance(schema.get("additionalProperties"), dict):
        return None
    parts = [each["$ref"] for each in schema.get("anyOf", [schema]) if "$ref" in each]
    known = [schema["components"]["schemas"][each.rpartition("/")[2]] for each in parts]
    unknown = [sorted(names - each["properties"].keys()) for each in known]
    return None if [] in unknown else f"not described: {unknown}"


@pytest.mark.slow
def test_recorded_answers_fit_their_schemas(document: Object) -> None:
    components = closed(document)
    answers = list(recorded(document))
    wrong = [f"{each.told}: {text}" for each in answers if (text := wrong_with(each, components))]
    assert wrong == []
    assert len(answers) > 500
    assert len({each.told.partition("?")[0] for each in answers if each.expected != EMPTY}) >= 100


@pytest.mark.slow
def test_a_wrong_schema_is_found(document: Object) -> None:
    """So the test above would fail if one were wrong."""
    components = closed(document)
    retention = components["schemas"]["RetentionPolicies"]["properties"]
    retention["retentionSizeInMB"] = {"type": "string"}
    del components["schemas"]["TopicStats"]["properties"]["ownerBroker"]
    wrong = [each.told for each in recorded(document) if wrong_with(each, components)]
    assert any(told.endswith("/retention") for told in wrong)
    assert any(told.endswith("/stats") for told in wrong)
