"""Apache's REST paths, and which of them are served (spec OP-03): makes docs/ADMIN.md.

`python -m compat_tests.apache.admin_paths` writes the page. With `--list` it first asks Apache's
classes for their paths, which stand in admin_paths.txt.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import trio

from compat_tests.apache.jars import PULSAR_VERSION, run_java
from geminga_broker._tests.wire import open_broker
from geminga_broker.admin.app import routes_of
from geminga_broker.admin.openapi.routes import BASE, PARTS

LIST = Path(__file__).parent / "admin_paths.txt"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "ADMIN.md"
_BROKER = "org.apache.pulsar.broker"
_V2 = (
    "Bookies", "BrokerStats", "Brokers", "Clusters", "ExtNonPersistentTopics",
    "ExtPersistentTopics", "Functions", "Namespaces", "NonPersistentTopics", "PersistentTopics",
    "ResourceGroups", "ResourceQuotas", "SchemasResource", "Tenants", "Worker", "WorkerStats",
)  # fmt: skip
_V3 = ("Functions", "Packages", "Sinks", "Sources", "Transactions")
CLASSES = (
    *(f"{_BROKER}.admin.v2.{name}=/admin/v2" for name in _V2),
    *(f"{_BROKER}.admin.v3.{name}=/admin/v3" for name in _V3),
    f"{_BROKER}.lookup.v2.TopicLookup=/lookup",
    f"{_BROKER}.rest.Topics=/topics",
)
"""Apache's resource classes, each with the path under which its server has it."""

OWN = (
    *("/admin/v2/bookies/space", "/subscription/{}/why"),
    *(f"{BASE}/{name}" for name in PARTS),
)
"""Ends of the paths that our broker has and Apache's has not; a path's parameters are `{}`."""

_INTRODUCTION = """# The REST interface

The paths of Apache Pulsar {version}'s broker, from the annotations of its classes, and what \
Geminga's broker serves of them: {served} of {of} operations. The others answer 404 or 405. \
A path under `/admin/v2/non-persistent/` has a line of its own where it differs from the \
one under `/admin/v2/persistent/`. The paths of version 1 are not listed. Who may call what: \
[SECURITY.md](SECURITY.md). Each policy, what is answered without it and \
what it does: [POLICIES.md](POLICIES.md).

Of namespaces these are kept and told without an effect here, as at an Apache broker without the \
feature: `offloadPolicies` and the other members of offloading (no tiered storage), \
`replicatorDispatchRate`, `allowedClusters`, `resourcegroup` and `/admin/v2/resourcegroups` (rates \
over all brokers, which Apache's enforce only with `resourceUsageTransportClassName`), \
`dispatcherPauseOnAckStatePersistent` (all acknowledgements are persisted, so that nothing has to \
wait). Refused with 501 is what would be believed to work: `replication` to another cluster, also \
in the policies of a new namespace, `migration` and `migrate` that begin one, \
`scanOffloadedLedgers`. `mbeans` has a few figures of the process under the names of Java's beans; \
`bookieops` counts what logs wait for, not their cursors.

Of topics the same holds: `offloadPolicies`, `replicatorDispatchRate` and \
`dispatcherPauseOnAckStatePersistent` are kept without an effect, `offload` fails as without an \
offloader, `replication` to another cluster and `shadowTopics` are refused with 501. \
`/admin/v3/transactions` answers as a broker without transactions; `functions`, `sinks`, `sources` \
and their workers as one without `functionsWorkerEnabled`, with 409 for every role, `packages` as \
one without `enablePackagesManagement`, with 503 for roles that may use packages. Over `/topics` \
a message whose text isn't a value of its schema is told as failed (Apache's broker stores an \
empty one), `deliverAt` needs no `eventTime`, and messages aren't deduplicated. Some calls that \
Apache's broker never answers, or with a trace, have an answer: 404 for properties of a missing \
topic, 405 for offloading and compaction of non-persistent ones.

Of our own, which Apache has not: `GET /admin/v2/bookies/space`, the room on the disks of bookies, \
with why one is read-only, and `GET .../subscription/{{subName}}/why`, why a subscription gets \
nothing. \
`POST /topics/...?withoutSchema=true` publishes the texts as they are, as a client without a \
schema does, and gives the topic none. `GET /admin/v2/openapi.json` describes what this broker \
serves, for Swagger UI and generators of clients: each operation with its parameters, bodies, \
answers and rights, as OpenAPI 3.1; `swagger.json`, `swaggerlookup.json` and \
`swaggertransactions.json` beside it are its parts by the names that Apache's site has. \
Operations under `/admin/v2/non-persistent/` that equal their twins are counted, without a line.

Each of the 651 methods of Apache's Java admin client that wait for an answer is called on this \
broker, and gets what Apache's broker gives, field by field; the eight methods for which that \
isn't so stand with their reasons in `compat_tests/clients/test_java_admin.py`.

Made by `python -m compat_tests.apache.admin_paths`; a test compares this page with the broker's \
routes, and the list with Apache's classes.
"""

Served = Mapping[str, set[str]]
"""The methods of each path; a path's parameters are `{}`."""


def paths_of_apache() -> str:
    """A line for each operation, from the annotations of Apache's classes; takes some seconds."""
    return run_java("AdminPaths", CLASSES)


async def served() -> Served:
    """What our broker serves."""
    found = defaultdict[str, set[str]](set)
    async with open_broker() as broker:
        for route in routes_of(broker.service):
            found[_shape(route.path)] |= route.methods or set()
    return found


def page(paths: str, ours: Served) -> str:
    """The text of docs/ADMIN.md."""
    theirs = defaultdict[str, set[str]](set)
    for line in paths.splitlines():
        path, method = line.split(" ")
        theirs[path].add(method)
    groups = defaultdict[str, list[str]](list)
    all_count = served_count = 0
    for path, methods in theirs.items():
        is_open = path.startswith("/admin/v2/non-persistent/")
        has = methods & ours.get(_shape(path), set())
        all_count += len(methods)
        served_count += len(has)
        twin = path.replace("/non-persistent/", "/persistent/")
        if is_open and (theirs.get(twin), ours.get(_shape(twin), set()) & methods) == (
            methods,
            has,
        ):
            continue
        groups[_group(path)].append(f"| `{path}` | {_list(has)} | {_list(methods - has)} |")
    parts = [_INTRODUCTION.format(version=PULSAR_VERSION, served=served_count, of=all_count)]
    for name, lines in sorted(groups.items()):
        parts.append(f"## {name}\n\n| Path | Served | Missing |\n|---|---|---|")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _group(path: str) -> str:
    parts = path.strip("/").split("/")
    depth = 3 if parts[0] == "admin" else 1
    return "/" + "/".join(parts[:depth])


def _list(methods: Iterable[str]) -> str:
    return ", ".join(sorted(methods))


def _shape(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def main() -> None:
    """Write the page."""
    if sys.argv[1:] == ["--list"]:
        LIST.write_text(paths_of_apache())
    PAGE.write_text(page(LIST.read_text(), trio.run(served)))


if __name__ == "__main__":
    main()
