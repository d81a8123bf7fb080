"""What Apache's broker answers about functions, connectors and packages where neither is switched
on (spec OP-03; Apache's `Functions`, `Sinks`, `Sources`, `Worker`, `WorkerStats`, `Packages`).
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.http import types

NO_WORKER = "Pulsar Function Worker is not enabled, probably functionsWorkerEnabled is set to false"
NO_PACKAGES = "Package Management Service is not enabled in the broker."
NO_METADATA = "Unknown error, metadata is null when processing update package metadata request"
PACKAGE_TYPES = ("function", "sink", "source")

_NAMESPACE = "/{tenant}/{namespace}"
_WORKER = (
    *(f"GET /worker-stats/{name}" for name in ("functionsmetrics", "metrics")),
    *("GET /worker/assignments", "GET /worker/cluster", "GET /worker/cluster/leader"),
    *("GET /worker/cluster/leader/ready", "GET /worker/connectors", "PUT /worker/rebalance"),
    *(f"{method} /worker{of}/drain" for method in ("GET", "PUT") for of in ("", "/leader")),
)
_FUNCTIONS_V2 = (
    *("GET /connectors", "GET /download", "POST /upload", f"GET {_NAMESPACE}"),
    *(f"{method} {_NAMESPACE}/{{name}}" for method in ("GET", "DELETE", "POST", "PUT")),
    *(f"GET {_NAMESPACE}/{{name}}/{end}" for end in ("state/{key}", "status")),
    *(f"POST {_NAMESPACE}/{{name}}/{end}" for end in ("restart", "stop", "trigger")),
    f"GET {_NAMESPACE}/{{name}}/{{instance}}/status",
    *(f"POST {_NAMESPACE}/{{name}}/{{instance}}/{end}" for end in ("restart", "stop")),
)
_FUNCTIONS_V3 = (
    *_FUNCTIONS_V2,
    *("GET /builtins", "POST /builtins/reload", f"PUT /leader{_NAMESPACE}/{{name}}"),
    *(f"GET {_NAMESPACE}/{{name}}/{end}" for end in ("download", "stats")),
    *(f"POST {_NAMESPACE}/{{name}}/{end}" for end in ("start", "state/{key}")),
    f"GET {_NAMESPACE}/{{name}}/{{instance}}/stats",
    f"POST {_NAMESPACE}/{{name}}/{{instance}}/start",
)
_FORMS = (
    *("POST /upload", f"PUT /leader{_NAMESPACE}/{{name}}"),
    *(f"{method} {_NAMESPACE}/{{name}}" for method in ("POST", "PUT")),
    *(f"POST {_NAMESPACE}/{{name}}/{end}" for end in ("trigger", "state/{key}")),
)
"""Their bodies are forms of several parts; those of other POSTs are JSON, if there is one."""


def _connectors(kind: str) -> tuple[str, ...]:
    built_in = f"builtin{kind}s"
    one = f"{_NAMESPACE}/{{name}}"
    ends = ("restart", "start", "stop")
    return (
        *(f"GET /{built_in}", f"GET /{built_in}/{{name}}/configdefinition"),
        f"POST /reloadBuiltIn{kind.capitalize()}s",
        f"GET {_NAMESPACE}",
        *(f"{method} {one}" for method in ("GET", "DELETE", "POST", "PUT")),
        *(f"GET {one}{of}/status" for of in ("", "/{instance}")),
        *(f"POST {one}{of}/{end}" for of in ("", "/{instance}") for end in ends),
    )


async def refuse(_request: Request) -> Response:
    """Refused: this broker has no functions and connectors."""
    raise rest.RestError(409, NO_WORKER)


async def refuse_json(request: Request) -> Response:
    """Refused: this broker has no functions and connectors."""
    if types.refusal("", request.headers.get("content-type"), (dict,), has_body=False):
        raise rest.Refused(415)
    return await refuse(request)


async def refuse_form(request: Request) -> Response:
    """Refused: this broker has no functions and connectors."""
    _require_form(request)
    return await refuse(request)


async def refuse_package(request: Request) -> Response:
    """Refused: this broker keeps no packages."""
    kind = rest.parameter(request, "type")
    if kind.lower() not in PACKAGE_TYPES:
        raise rest.RestError(412, f"Invalid package domain: '{kind}'")
    raise rest.RestError(503, NO_PACKAGES)


async def refuse_upload(request: Request) -> Response:
    """Refused: this broker keeps no packages."""
    _require_form(request)
    return await refuse_package(request)


async def refuse_metadata(request: Request) -> Response:
    """Refused: this broker keeps no packages."""
    if await rest.read_body(request, dict[str, object]) is None:
        raise rest.RestError(400, NO_METADATA)
    return await refuse_package(request)


def _require_form(request: Request) -> None:
    """Raises Refused. The parts are left unread."""
    content_type = request.headers.get("content-type")
    if content_type is None:
        raise rest.Refused(400)
    if content_type.partition(";")[0].strip().lower() != "multipart/form-data":
        raise rest.Refused(415)


def routes() -> list[Route]:
    """All routes of the family."""
    return [
        *(_of("/admin/v2", row) for row in _WORKER),
        *(_of("/admin/v2/functions", row) for row in _FUNCTIONS_V2),
        *(_of("/admin/v3/functions", row) for row in _FUNCTIONS_V3),
        *(_of("/admin/v3/sinks", row) for row in _connectors("sink")),
        *(_of("/admin/v3/sources", row) for row in _connectors("source")),
        *_packages(),
    ]


def _of(base: str, row: str) -> Route:
    method, path = row.split(" ")
    handler: rest.Handler = refuse
    if row in _FORMS:
        handler = refuse_form
    elif method == "POST":
        handler = refuse_json
    return rest.route(method, base + path, handler)


def _packages() -> list[Route]:
    all_of = f"/admin/v3/packages/{{type}}{_NAMESPACE}"
    version = f"{all_of}/{{package}}/{{version}}"
    return [
        rest.route("GET", all_of, refuse_package),
        rest.route("GET", f"{all_of}/{{package}}", refuse_package),
        *rest.at(version, get=refuse_package, delete=refuse_package, post=refuse_upload),
        *rest.at(f"{version}/metadata", get=refuse_package, put=refuse_metadata),
    ]
