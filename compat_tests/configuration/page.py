"""Makes docs/CONFIGURATION.md, and the list of Apache's keys that servers look up.

`python -m compat_tests.configuration.page` writes both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import geminga_runtime.known_keys
from compat_tests.apache.jars import PULSAR_VERSION, TOOLS_VERSION
from compat_tests.configuration import state
from compat_tests.configuration.state import BOOKIE, BROKER, CLIENT, PROXY
from geminga.cli._client_conf import ClientFile
from geminga_bookie.process.config import BookieConfig
from geminga_broker.config import CHOICES, BrokerConfig, ClusterBrokerConfig
from geminga_broker.dynamic_config import KEYS
from geminga_broker.loadbalance import settings as load_balance
from geminga_proxy.config import ProxyConfig
from geminga_runtime.known_keys import KnownKey

PAGE = Path(__file__).resolve().parents[2] / "docs" / "CONFIGURATION.md"
PACKAGED = Path(geminga_runtime.known_keys.__file__).parent / "keys.txt"
FILES = {
    BROKER: ("`broker.conf` and `standalone.conf`", ClusterBrokerConfig),
    BOOKIE: ("`bookkeeper.conf`", BookieConfig),
    PROXY: ("`proxy.conf`", ProxyConfig),
    CLIENT: ("`client.conf`", ClientFile),
}
_ALLOWED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    BROKER: CHOICES | load_balance.CHOICES,
    BOOKIE: {"tlsKeyStoreType": ("PEM",), "tlsTrustStoreType": ("PEM",)},
    PROXY: {},
    CLIENT: {},
}
_APACHES_TOO = {"journalRemovePagesFromCache"}
"""Apache's, although no class that is asked has it. So are `openID...` of its OIDC provider, but
for the one that names a file.
"""
_TITLE = re.compile(r"[^.(;]*(\.conf`[^.(;]*)*")
_TYPES = {bool: "true or false", int: "whole number", float: "number", str: "text"}

_INTRODUCTION = """# Configuration

Servers read Apache's files: `geminga broker` and `geminga standalone` a `broker.conf` or \
`standalone.conf`, `geminga bookie` and `geminga autorecovery` a `bookkeeper.conf`, \
`geminga proxy` a `proxy.conf`, and the commands a `client.conf`. Every key of Apache Pulsar \
{version} and BookKeeper 4.17 is on this page: it works, is ignored for a reason, or is refused.

- **Form**: Java's properties. An empty value means the default.
- **Environment**: `PULSAR_PREFIX_KEY=value` wins over the file's `KEY`, and an option of the \
command line over both. `client.conf` has no such variables.
- **While brokers run**: keys marked "yes" can be changed for all brokers of a cluster: \
`geminga admin brokers update-dynamic-config --config KEY --value VALUE`, and \
`delete-dynamic-config` to have the file's values again. They stand in the metadata store, at \
`/admin/configuration`, where Apache's brokers have them.
- **Errors**: a value of another type or out of bounds ends the start with one sentence that names \
the key and where it stands, and exit code 2.
- **Warnings**: a key that has no effect here is named in one line if its value isn't the default \
of Apache's class or file; a key that Apache hasn't either in another one, with the key that was \
meant if one is close. `transactionCoordinatorEnabled=true` has a line of its own: such a \
cluster's file starts a broker, but there are no transactions yet. Apache's files as they come \
cause no warning.

"Apache's" is the default of Apache's class where ours is another one; sizes of caches and numbers \
of threads depend on its machine. What is sized by memory there is small here ([OPERATIONS.md]\
(OPERATIONS.md)). "Ours" marks what Apache hasn't.
"""
_END = """
Made by `python -m compat_tests.configuration.page` from the declarations in the code, \
`compat_tests/configuration/apache_keys.txt` (Apache's keys, from its classes; those of the proxy \
and the commands from {tools}, as Maven Central hasn't {version}'s), `reasons.txt` and \
`meanings.txt` beside it. Tests compare all of them with each other, the list with Apache's \
classes, and start a configuration with each of Apache's defaults.
"""


def page() -> str:
    """The text of the page."""
    parts = [_INTRODUCTION.format(version=PULSAR_VERSION)]
    for file, (title, config_type) in FILES.items():
        parts.append(f"## {title}\n\n{_counts(file)}\n")
        parts += _works(file, config_type)
        if file == BROKER:
            parts.append(_differences())
        parts.append(_without_effect(file))
        parts.append(_refused(file))
    return "\n".join(filter(None, parts)) + _END.format(tools=TOOLS_VERSION, version=PULSAR_VERSION)


def _counts(file: str) -> str:
    theirs, stated = state.apache(file).keys(), state.stated(file)
    works = theirs & (state.READ[file].keys() | state.OLDER[file].keys())
    refused = {key for key in theirs & stated.keys() if stated[key].refused}
    ignored = theirs & stated.keys() - refused
    told = f"Of Apache's {len(theirs)} keys {len(works)} work, {len(ignored)} are ignored"
    return f"{told} and {len(refused)} refused."


def meanings() -> dict[str, dict[str, str]]:
    """A sentence for each key that works, by file; that of a broker's key holds elsewhere, too."""
    found: dict[str, dict[str, str]] = {BROKER: {}}
    file = BROKER
    for line in (state.FOLDER / "meanings.txt").read_text().splitlines():
        if line.startswith("["):
            file = line.strip("[]")
            found[file] = {}
            continue
        key, _, sentence = line.partition(": ")
        assert key not in found[file], f"{key} of {file} is there twice"
        found[file][key] = sentence
    return found


def _works(file: str, config_type: type[Any]) -> Iterator[str]:
    told = meanings()
    seen: set[str] = set()
    has_dynamic = file == BROKER
    for part in fields(config_type):
        kind: Any = part.default_factory
        named = _TITLE.match(kind.__doc__)
        assert named is not None, kind
        title = named[0].rstrip(".,:; ")
        rows = []
        for one in fields(kind):
            key = one.metadata["key"]
            if key not in seen:
                seen.add(key)
                sentence = told[file].get(key) or told[BROKER][key]
                rows.append(_row(file, key, one, sentence))
        for older, key in state.OLDER[file].items():
            if key in {one.metadata["key"] for one in fields(kind)}:
                cells = [f"`{older}`", "", "", "", "", "" if has_dynamic else None]
                sentence = told[file].get(older) or told[BROKER][older]
                rows.append(_cells([*cells, sentence]))
        head = ["Key", "Type", "Default", "Apache's", "Bounds"]
        head += [*(["Changes"] if has_dynamic else []), "What it does"]
        lines = [_cells(head), "|" + "---|" * len(head), *rows]
        yield f"### {title}\n\n" + "\n".join(lines) + "\n"


def _row(file: str, key: str, one: Field[Any], sentence: str) -> str:
    ours, theirs = state.default_of(one), state.apache(file).get(key)
    other = theirs is not None and theirs.kind and not _same(ours, theirs.default)
    mark = _mark(file, key)
    return _cells(
        [
            f"`{key}`",
            _TYPES[type(one.default)],
            _value(ours),
            _value(theirs.default) if theirs is not None and other else "",
            _bounds(file, key, one),
            ("yes" if key in KEYS else "") if file == BROKER else None,
            f"{mark}{sentence}",
        ]
    )


def _mark(file: str, key: str) -> str:
    known = {*state.apache(file), *state.apache(BOOKIE)} if file == BROKER else state.apache(file)
    of_bookies = key.removeprefix("bookkeeper_") in state.apache(BOOKIE)
    is_openid = key.startswith("openID") and key != "openIDJwksFile"
    if key not in known and not of_bookies and not is_openid and key not in _APACHES_TOO:
        return "Ours: "
    in_cluster_only = file == BROKER and key not in state.declared(BrokerConfig)
    return "Of `geminga broker`: " if in_cluster_only else ""


def _same(ours: str, theirs: str) -> bool:
    no_port = ("-1", "")
    if (ours, theirs) == no_port:
        return True
    if sorted(ours.split(",")) == sorted(theirs.split(",")):
        return True
    return KnownKey("", False, (ours,)).is_default(theirs) if theirs else ours in ("", "0")


def _bounds(file: str, key: str, one: Field[Any]) -> str:
    if allowed := _ALLOWED[file].get(key):
        return ", ".join(f"`{each}`" for each in allowed)
    if type(one.default) not in (int, float):
        return ""
    low, high = one.metadata["min"], one.metadata["max"]
    if one.metadata["off"]:
        return f"{low:g} and less: off"
    return f"at least {low:g}" if math.isinf(high) else f"{low:.10g} to {high:.10g}"


def _differences() -> str:
    """Of the keys that can be changed while Apache's brokers run."""
    theirs = {key for key, one in state.apache(BROKER).items() if one.dynamic}
    read = state.READ[BROKER].keys() | state.OLDER[BROKER].keys()
    at_start, unread = sorted(theirs & read - {*KEYS}), sorted(theirs - read)
    mine = sorted({*KEYS} - theirs)
    text = (
        f"### Changes while brokers run\n\nOf the {len(theirs)} keys that Apache's broker takes "
        f"changes of, {len(theirs & {*KEYS})} are taken here. Read at the start only: "
        f"{_list(at_start)}. The other {len(unread)} aren't read at all, see below."
    )
    return text + (f" Taken here only: {_list(mine)}.\n" if mine else "\n")


def _without_effect(file: str) -> str:
    by_reason: dict[str, list[str]] = {}
    for key, one in state.stated(file).items():
        if not one.refused:
            by_reason.setdefault(one.reason, []).append(key)
    rows = [_cells([reason, _list(sorted(keys))]) for reason, keys in by_reason.items()]
    return "### Ignored\n\n| Why | Keys |\n|---|---|\n" + "\n".join(rows) + "\n"


def _refused(file: str) -> str:
    rows = [
        _cells([f"`{key}`", ", ".join(map(_value, dict.fromkeys(one.defaults))), one.reason])
        for key, one in state.unread(file).items()
        if one.refused
    ]
    if not rows:
        return ""
    head = "### Refused\n\nEach other value ends the start.\n\n| Key | Taken | What to do |\n"
    return head + "|---|---|---|\n" + "\n".join(rows) + "\n"


def _list(keys: list[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys)


def _value(text: str) -> str:
    return f"`{text}`" if text else "empty"


def _cells(cells: list[str | None] | list[str]) -> str:
    return f"| {' | '.join(cell for cell in cells if cell is not None)} |"


def main() -> None:
    """Write the page and the packaged list."""
    PACKAGED.write_text(state.packaged())
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
