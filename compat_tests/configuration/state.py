"""What becomes of each key of Apache's files here: it works, is ignored, or is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from compat_tests.configuration.record import LIST, Key, parse
from geminga.cli._client_conf import ClientFile
from geminga_bookie.autorecovery.config import AutoRecoveryConfig
from geminga_bookie.process.config import BookieConfig
from geminga_broker import older_keys
from geminga_broker.config import BrokerConfig, ClusterBrokerConfig
from geminga_proxy.config import OLDER_KEYS, ProxyConfig
from geminga_runtime.known_keys import KnownKey
from geminga_runtime.settings import written_value

FOLDER = Path(__file__).parent
BROKER, BOOKIE, PROXY, CLIENT = "broker.conf", "bookkeeper.conf", "proxy.conf", "client.conf"
AUTHENTICATION = "authentication"
_ANY = "*"

Fields = dict[str, Field[Any]]


class Stated(NamedTuple):
    """Why a key isn't read, or must have its default; `default` of a key that no class has."""

    reason: str
    refused: bool
    default: str | None = None
    alone: bool = False


def declared(config_type: type[Any]) -> Fields:
    """The fields of a configuration by their keys."""
    found: Fields = {}
    for part in fields(config_type):
        kind: Any = part.default_factory
        found |= {one.metadata["key"]: one for one in fields(kind)}
    return found


def default_of(one: Field[Any]) -> str:
    """As in a file."""
    return written_value(one.default)


RECORD = parse(LIST.read_text())
READ = {
    BROKER: declared(ClusterBrokerConfig),
    BOOKIE: declared(BookieConfig) | declared(AutoRecoveryConfig),
    PROXY: declared(ProxyConfig),
    CLIENT: declared(ClientFile),
}
"""What we read, by file."""

OLDER: Mapping[str, Mapping[str, str]] = {
    BROKER: older_keys.WEIGHTS_BY_OLDER
    | {name: key for key, names in older_keys.CLUSTER.items() for name in names}
    | {name: key for key, names in older_keys.ALL.items() for name in names},
    PROXY: {name: key for key, names in OLDER_KEYS.items() for name in names},
    BOOKIE: {},
    CLIENT: {},
}
"""Names that are read for those of now."""


def apache(file: str) -> dict[str, Key]:
    """All of Apache's keys of a file."""
    found = dict(RECORD[file])
    if file in (BROKER, PROXY):
        found |= RECORD[AUTHENTICATION]
    return found


def stated(file: str) -> dict[str, Stated]:
    """Our record of the keys that we don't read."""
    found: dict[str, Stated] = {}
    for files, mark, reason, words in _groups((FOLDER / "reasons.txt").read_text()):
        if file not in files:
            continue
        for word in words:
            key, given, default = word.partition("=")
            assert key not in found, f"{key} of {file} has two reasons"
            own = default if given else None
            found[key] = Stated(reason, mark == "!", own, mark == "?")
    return found


def _groups(text: str) -> Iterator[tuple[list[str], str, str, list[str]]]:
    for group in text.split("\n["):
        head, _, body = group.lstrip("[").partition("]\n")
        mark = min((sign for sign in ":!?" if sign in head), key=head.index)
        files, _, reason = head.partition(mark)
        yield files.split(), mark, reason.strip(), body.split()


def stock(file: str) -> dict[str, list[str]]:
    """Values of Apache's files that come with it, where they differ from its classes."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in (FOLDER / "stock.txt").read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif section == file:
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def unread(file: str) -> dict[str, KnownKey]:
    """The keys that we don't read, each with the values that change nothing."""
    theirs, others = apache(file), stock(file)
    return {
        key: KnownKey(
            one.reason, one.refused, tuple(_defaults(key, one, theirs, others)), one.alone
        )
        for key, one in stated(file).items()
    }


def _defaults(
    key: str, one: Stated, theirs: Mapping[str, Key], others: Mapping[str, list[str]]
) -> Iterator[str]:
    if one.default is not None:
        yield one.default
    elif key in theirs:
        yield theirs[key].default
    yield from others.get(key, ())


@dataclass(frozen=True, slots=True)
class Reader:
    """A command, the keys that it uses, and where those that it doesn't use are stated."""

    name: str
    used: Fields
    known: Mapping[str, KnownKey]


def readers() -> list[Reader]:
    """All of them."""
    broker, bookie = unread(BROKER), unread(BOOKIE)
    mine = declared(BrokerConfig)
    elsewhere = {key: _unread_by_standalone(key) for key in sorted(_not_in_a_standalone(mine))}
    of_bookies = {key: one._replace(refused=False) for key, one in bookie.items()}
    recovery = declared(AutoRecoveryConfig)
    bookies_own = {
        key: KnownKey("read by the bookie only", False, (_ANY,))
        for key in declared(BookieConfig)
        if key not in recovery
    }
    standalone = of_bookies | elsewhere | broker
    return [
        Reader("broker", READ[BROKER], broker),
        Reader("standalone", mine, {k: v for k, v in standalone.items() if k not in mine}),
        Reader("bookie", READ[BOOKIE], bookie),
        Reader("autorecovery", recovery, bookie | bookies_own),
        Reader("proxy", READ[PROXY], unread(PROXY)),
        Reader("client", READ[CLIENT], unread(CLIENT)),
    ]


def _not_in_a_standalone(mine: Fields) -> set[str]:
    cluster = READ[BROKER].keys() | {n for names in older_keys.CLUSTER.values() for n in names}
    return (cluster | READ[BOOKIE].keys()) - mine.keys()


def _unread_by_standalone(key: str) -> KnownKey:
    values = []
    for file in (BROKER, BOOKIE):
        if key in READ[file]:
            values.append(default_of(READ[file][key]))
        if key in apache(file):
            values.append(apache(file)[key].default)
        values += stock(file).get(key, [])
    return KnownKey("of a cluster's broker or bookie only", False, tuple(dict.fromkeys(values)))


def packaged() -> str:
    """The text of `known_keys/keys.txt`."""
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for reader in readers():
        for key, one in reader.known.items():
            lines = "\n".join(f"{key}={value}" for value in dict.fromkeys(one.defaults or ("",)))
            mark = "!" if one.refused else "?" if one.alone else ":"
            groups.setdefault((one.reason, mark), {}).setdefault(lines, []).append(reader.name)
    parts = []
    for (reason, mark), lines_of in groups.items():
        by_readers: dict[str, list[str]] = {}
        for lines, names in lines_of.items():
            by_readers.setdefault(" ".join(names), []).append(lines)
        parts += [f"[{names}{mark} {reason}]\n" + "\n".join(sorted(lines)) + "\n"
                  for names, lines in by_readers.items()]  # fmt: skip
    return "".join(parts)
