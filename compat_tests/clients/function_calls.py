"""Calls of functions, connectors and packages, and what Apache Pulsar 4.0.7 answers without
`functionsWorkerEnabled` and `enablePackagesManagement`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from compat_tests.apache.admin_paths import LIST
from compat_tests.clients.rest_calls import reason

FAMILIES = ("functions", "worker", "worker-stats", "sinks", "sources", "packages")
JSON, FORM = "application/json", "multipart/form-data; boundary=B"
PAGE = "text/html"
TYPES = {JSON: "{}", FORM: '--B\r\nContent-Disposition: form-data; name="x"\r\n\r\n{}\r\n--B--\r\n',
         "text/plain": "x"}  # fmt: skip

NO_WORKER = (
    409,
    JSON,
    reason(
        "Pulsar Function Worker is not enabled, probably functionsWorkerEnabled is set to false"
    ),
)
NO_PACKAGES = (503, JSON, reason("Package Management Service is not enabled in the broker."))
NO_METADATA = reason(
    "Unknown error, metadata is null when processing update package metadata request"
)
_PARTS = {"tenant": "public", "namespace": "default", "type": "function", "instanceId": "0"}
_JSON_ENDS = ("start", "stop", "restart", "reload", "reloadBuiltInSinks", "reloadBuiltInSources")


class FunctionCall(NamedTuple):
    """A call, and its answer."""

    method: str
    path: str
    sent_as: str | None
    status: int
    content: str | None
    body: object
    """None where the body isn't compared."""


def _answers(method: str, path: str) -> dict[str | None, tuple[int, str | None, object]]:
    """By the type of the body that is sent; None is for a call without one."""
    page = PAGE if method == "POST" else None
    refused = (415, page, None)
    last = path.rpartition("/")[2]
    if "/packages/" in path:
        if method == "PUT":
            return {None: (400, JSON, NO_METADATA), JSON: NO_PACKAGES, FORM: refused,
                    "text/plain": refused}  # fmt: skip
        if method == "POST":
            return {None: (400, page, None), JSON: refused, "text/plain": refused}
        return {None: NO_PACKAGES}
    if "/worker" in path or method in ("GET", "DELETE"):
        kinds = TYPES if method == "PUT" else ()
        return {None: NO_WORKER} | dict.fromkeys(kinds, NO_WORKER)
    if last in _JSON_ENDS:
        return {None: NO_WORKER, JSON: NO_WORKER, FORM: refused, "text/plain": refused}
    return {None: (400, page, None), FORM: NO_WORKER, JSON: refused, "text/plain": refused}


def calls() -> list[FunctionCall]:
    """Each of Apache's operations, with each type of body."""
    found = []
    for line in LIST.read_text().splitlines():
        path, method = line.split(" ")
        if path.split("/")[3] not in FAMILIES:
            continue
        filled = re.sub(r"{(\w+)}", lambda match: _PARTS.get(match[1], "x"), path)
        for sent_as, answer in _answers(method, filled).items():
            found.append(FunctionCall(method, filled, sent_as, *answer))
    wrong = (412, JSON, reason("Invalid package domain: 'wrong'"))
    path = "/admin/v3/packages/wrong/public/default"
    return [*found, FunctionCall("GET", path, None, *wrong)]
