"""Makes docs/POLICIES.md from the table: `python -m compat_tests.policies.page` writes it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from compat_tests.policies import table
from compat_tests.policies.model import EMPTY, Level, Policy

PAGE = Path(__file__).resolve().parents[2] / "docs" / "POLICIES.md"
_INTRODUCTION = """# Policies

Every policy of Apache Pulsar's namespaces and topics, and what it does here. The nearest level \
that has a value holds: a topic's before its namespace's, that before the key of `broker.conf`. \
Topics that are loaded obey a change at once, at every broker. \
How to call: [ADMIN.md](ADMIN.md); more about some of them: [OPERATIONS.md](OPERATIONS.md).

Namespaces: `/admin/v2/namespaces/{tenant}/{namespace}/...`, topics: \
`/admin/v2/persistent/{tenant}/{namespace}/{topic}/...`. GET reads, the method that is named with \
the path sets, DELETE removes, if nothing else is said. "Unset" is the answer to GET without a \
value, of a namespace and of a topic: its status without a body, or its body. Where "applied" is \
said, `?applied=true` tells what holds by all levels; elsewhere, as at Apache's broker, it tells \
the topic's own value, too.
"""
_END = """
Three answers with `?applied=true` differ from Apache's broker, which doesn't tell a namespace's \
`subscriptionTypesEnabled` and `dispatcherPauseOnAckStatePersistent`, and by telling a topic's \
`backlogQuotaMap` takes the quotas of `broker.conf` into its copy of the namespace's policies.

Made from `compat_tests/policies/table.py` by `python -m compat_tests.policies.page`; a test \
compares them. Other tests set, read and remove each policy at both levels, here and at an Apache \
broker, and look at its effect on a loaded topic.
"""
_GROUPS = (
    ("Limits", table.LIMITS),
    ("Rates", table.RATES),
    ("What is kept", table.LIFE),
    ("Clients and delivery", table.CLIENTS),
    ("Schemas", table.SCHEMAS),
    ("Rights, places, clusters", table.PLACES),
)


def page() -> str:
    """The text of the page."""
    parts = [_INTRODUCTION]
    for title, policies in _GROUPS:
        parts.append(f"## {title}\n\n" + "\n".join(_rows(policies)) + "\n")
    return "\n".join(parts) + _END


def _rows(policies: Iterable[Policy]) -> Iterable[str]:
    yield "| Policy | Namespace | Topic | `broker.conf` | Unset | Effect here |"
    yield "|---|---|---|---|---|---|"
    for each in policies:
        levels = [level for level in (each.namespace, each.topic) if level and level.has_form]
        cells = (
            each.name,
            _call(each.namespace),
            _call(each.topic),
            ", ".join(map(_code, each.keys)),
            ", ".join(dict.fromkeys(map(_unset, levels))),
            each.effect,
        )
        yield f"| {' | '.join(cells)} |"


def _call(level: Level | None) -> str:
    if level is None:
        return ""
    told = f"{level.verb} {_code(level.set_at.replace('s1/', '{subscription}/'))}"
    method, path, value = level.removed_by
    if level.has_form and level.lasting:
        told += f", not removed but set to {_code(json.dumps(value))}"
    elif level.has_form and method == level.verb:
        told += f", removed by {_code(json.dumps(value)) if value else 'an empty body'}"
    elif level.has_form and path not in (level.set_at, level.path):
        told += f", removed by {method} {_code(path)}"
    return told if level.applied is None else f"{told}; applied"


def _unset(level: Level) -> str:
    return str(level.absent) if level.unset == EMPTY else _code(json.dumps(level.unset))


def _code(text: str) -> str:
    return f"`{text}`"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
