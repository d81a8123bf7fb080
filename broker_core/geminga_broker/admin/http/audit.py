"""Lines of the log for calls: each change, each call that was slow, all of them on demand (spec
OP-03, OP-08).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from geminga_broker.authz.authorizer import Caller
from geminga_runtime.logs import shown
from geminga_runtime.observing.slow import SLOW_S, SlowOperations

_audit = logging.getLogger("geminga.audit")
_access = logging.getLogger("geminga.access")

_CALL = "address=%s %s %s by role=%s%s: %s, %s bytes"
_LINE = f"{_CALL} in %.0f ms"
_READS = ("GET", "HEAD", "OPTIONS")
_PUBLISHES = "/topics/"
"""What is stored there is told by the topic's figures, not by a line for each message."""
_REFUSALS = (401, 403)
_CHANGING_GETS = ("/admin/v2/brokers/backlog-quota-check",)
"""It drops what stands above the quotas of topics."""

TOLD = frozenset({
    "applied", "authoritative", "backlogQuotaType", "brokerId", "bundle",
    "checkAllowAutoCreation", "coordinatorId", "createLocalTopicOnly", "destinationBroker",
    "excludeConsumers", "excludePublishers", "force", "getEarliestTimeInBacklog", "group",
    "includeSystemTopic", "initialPosition", "isGlobal", "key", "listenerName",
    "maxConcurrentUnloadPerSec", "messagePosition", "messageTTL", "migrated", "mode",
    "perPartition", "property", "replicated", "splitAlgorithmName", "subscriptionBacklogSize",
    "tenant", "topicVersion", "topics", "unload", "withoutSchema",
})  # fmt: skip
"""Names of queries that are told, with their values; of others, which may be a secret that was sent
to the wrong place and have no effect, only that there were some.
"""

QUERY_CHARACTERS_MAX = 2000
"""More of a query isn't looked at."""

Handler = Callable[[Request], Awaitable[Response]]


class Audit:
    """Of one broker's calls.

    `geminga.audit` at INFO: changes, with what came of them, also those that were refused.
    `geminga.access` at WARNING: slow calls, few lines for each path; at DEBUG: all other calls.
    """

    def __init__(
        self,
        status_of: Callable[[Exception], int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`status_of` says with which status an error of a handler is answered."""
        self._status_of = status_of
        self._clock = clock
        self._slow = SlowOperations(_access)

    async def told(self, path: str, handler: Handler, request: Request) -> Response:
        """The handler's response, or its error. `path` is that of the route."""
        began_s = self._clock()
        outcome: object = "not answered"
        size = "?"
        try:
            response = await handler(request)
            outcome = response.status_code
            size = response.headers.get("content-length", "0" if outcome == 204 else "?")
        except Exception as error:
            outcome = self._status_of(error)
            raise
        finally:
            taken_s = self._clock() - began_s
            call = _call(request, outcome, size)
            if _is_change(request.method, path, outcome):
                _audit.info(_LINE, *call, taken_s * 1000)
            elif taken_s <= SLOW_S:
                _access.debug(_LINE, *call, taken_s * 1000)
            self._slow.ended(taken_s, _CALL, *call, about=path)
        return response


def _is_change(method: str, path: str, outcome: object) -> bool:
    """`path` is that of the route: what the client sent must not decide."""
    if method in _READS:
        return path in _CHANGING_GETS and method != "OPTIONS"
    return not path.startswith(_PUBLISHES) or outcome in _REFUSALS


def _call(request: Request, outcome: object, size: str) -> tuple[object, ...]:
    client = request.client
    address = f"{client.host}:{client.port}" if client else "-"
    caller: Caller | None = getattr(request.state, "caller", None)
    role = through = ""
    if caller is not None:
        role = caller.original or caller.role or ""
        through = f" through {shown(caller.role or '')}" if caller.original else ""
    path = shown(request.scope["path"]) + _query(request.scope["query_string"].decode("latin-1"))
    return address, request.method, path, shown(role) or "-", through, outcome, size


def _query(query: str) -> str:
    """What is told of it, with the question mark."""
    if not query:
        return ""
    parts = query[:QUERY_CHARACTERS_MAX].split("&")
    told = [part for part in parts if part.partition("=")[0] in TOLD]
    if len(told) < len(parts) or len(query) > QUERY_CHARACTERS_MAX:
        told.append("...")
    return "?" + shown("&".join(told))
