"""Calls of every operation that the description names, made by schemathesis, and what must hold of
the answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias
from urllib.parse import quote

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import response_schema_conformance

Object: TypeAlias = dict[str, Any]

TENANT, NAMESPACE, PLAIN, PARTED, SUBSCRIPTION = "checked", "ns", "plain", "parted", "sub"
KNOWN = {
    "tenant": (TENANT,),
    "namespace": (NAMESPACE,),
    "topic": (PLAIN, PARTED, f"{PARTED}-partition-0"),
    "subscription": (SUBSCRIPTION,),
    "bundle": ("0x00000000_0xffffffff",),
    "cluster": ("standalone",),
    "domain": ("persistent",),
}
"""Names of what is there, which stand in most calls: of others all that is learnt is that they are
missing."""
ANSWER_S = 30.0
"""How long an answer may take, on a busy machine."""
LEFT_OUT = {"/admin/v2/brokers/shutdown"}
"""Ends the server that is called; `test_stopping` has it."""


class Described:
    """A server with its description."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session = requests.Session()
        self.document: Object = self.session.get(f"{url}/admin/v2/openapi.json").json()
        # Whatever goes wrong within would be excused by it.
        for verbs in self.document["paths"].values():
            for each in verbs.values():
                del each["responses"]["default"]
        self.succeeded: set[str] = set()
        """Operations that did at least once what they were called for."""
        self._schema = schemathesis.openapi.from_dict(self.document)

    def operations(self, *begins: str) -> list[Any]:
        """Those whose paths begin so; what deletes comes last."""
        found = [each.ok() for each in self._schema.get_all_operations() if isinstance(each, Ok)]
        chosen = [
            each for each in found if each.path.startswith(begins) and each.path not in LEFT_OUT
        ]
        return sorted(chosen, key=lambda each: each.method == "delete")

    def prepare(self) -> None:
        """Make what `KNOWN` names, as far as it is missing."""
        put, base = self._put, f"{TENANT}/{NAMESPACE}"
        put(f"/admin/v2/tenants/{TENANT}", {"allowedClusters": ["standalone"]})
        put(f"/admin/v2/namespaces/{base}", {"bundles": {"numBundles": 1}})
        for domain in ("persistent", "non-persistent"):
            put(f"/admin/v2/{domain}/{base}/{PLAIN}", None)
            put(f"/admin/v2/{domain}/{base}/{PARTED}/partitions", 2)
        for topic in (PLAIN, PARTED):
            path = f"/admin/v2/persistent/{base}/{topic}/subscription/{SUBSCRIPTION}"
            put(path, "earliest")
            messages = [{"payload": "one"}, {"payload": "two"}]
            body: Any = {"producerName": "checker", "messages": messages}
            self.session.post(f"{self.url}/topics/persistent/{base}/{topic}", json=body)

    def _put(self, path: str, body: Any) -> None:
        self.session.put(self.url + path, json=body)

    def healthy(self) -> bool:
        """Whether the broker takes and delivers messages."""
        return self.session.get(f"{self.url}/admin/v2/brokers/health").text == "ok"

    def check(self, operation: Any, examples: int) -> Iterator[str]:
        """Call an operation so many times with values that fit its description, and if there are
        others, with those; yields what was wrong.
        """
        if operation.method == "delete" or "terminate" in operation.path:
            self.prepare()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            if mode is GenerationMode.POSITIVE or self._can_be_wrong(operation):
                yield from self._check(operation, mode, examples)

    def _check(self, operation: Any, mode: GenerationMode, examples: int) -> list[str]:
        wrong: list[str] = []

        @seed(20)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode), st.integers(0, 7))
        def call(case: Any, choice: int) -> None:
            if choice:
                known = {
                    name: quote(KNOWN[name][choice % len(KNOWN[name])])
                    for name in case.path_parameters or {}
                    if name in KNOWN
                }
                case.path_parameters.update(known)
            try:
                response = case.call(base_url=self.url, session=self.session, timeout=ANSWER_S)
            except requests.RequestException as error:
                wrong.append(f"{operation.label} {case.as_curl_command()}: {error!r}")
                return
            if response.status_code < 300:
                self.succeeded.add(operation.label)
            told = f"{operation.label} {case.path_parameters} {case.query} {str(case.body)[:200]}"
            wrong.extend(f"{told}: {each}" for each in self._wrong(operation, case, response))

        call()
        return wrong

    def _wrong(self, operation: Any, case: Any, response: Any) -> Iterator[str]:
        answers = self.document["paths"][operation.path][operation.method]["responses"]
        answer = answers.get(str(response.status_code))
        text = response.content[:300]
        if answer is None:
            yield f"status {response.status_code} {text!r}"
            return
        answer = self._found("responses", answer)
        content, kind = answer.get("content", {}), response.headers.get("content-type", [""])[0]
        if response.content and kind not in content and kind.partition(";")[0] not in content:
            yield f"{response.status_code} of type {kind!r} {text!r}"
        if "traceback" in response.text.lower() or "Internal error" in response.text:
            yield f"{response.status_code} {text!r}"
        # What is no JSON, though Apache's server calls it so, has its own type in the schema.
        schema = content.get("application/json", {}).get("schema", {})
        if response.content and schema and "contentMediaType" not in schema:
            try:
                case.validate_response(response, checks=[response_schema_conformance])
            except BaseExceptionGroup as error:
                yield f"{response.status_code} {text!r}: {error.exceptions[0]}"

    def _can_be_wrong(self, operation: Any) -> bool:
        """Whether there are values that don't fit: every text fits a text of a path or query."""
        found = self.document["paths"][operation.path][operation.method]
        if any(
            each.get("schema") for each in found.get("requestBody", {}).get("content", {}).values()
        ):
            return True
        parameters = [self._found("parameters", each) for each in found["parameters"]]
        return any(each["schema"]["type"] != "string" for each in parameters)

    def _found(self, family: str, reference: Object) -> Object:
        found: Object = self.document["components"][family][reference["$ref"].rpartition("/")[2]]
        return found
