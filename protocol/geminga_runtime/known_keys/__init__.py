"""Apache's configuration keys that we don't read: why, and with which values nobody misses them
(spec OP-07).

They stand in keys.txt, which is made by `compat_tests.configuration.page`, and is read only when a
configuration has keys that its reader doesn't use.
"""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

_ANY = "*"
_OFF = ("", "null", "none")


class KnownKey(NamedTuple):
    """A key that has no effect here. With `refused`, another value than a default ends the start:
    `reason` says what to do then. With `alone` it has a warning of its own.
    """

    reason: str
    refused: bool
    defaults: tuple[str, ...]
    alone: bool = False

    def is_default(self, text: str) -> bool:
        """Whether the value changes nothing at Apache's either."""
        value = _plain(text)
        return value in _OFF or any(each in (_ANY, value) for each in map(_plain, self.defaults))


class KnownKeys:
    """Those of the files that one process reads."""

    def __init__(self, keys: dict[str, KnownKey]) -> None:
        self._keys = {key: one for key, one in keys.items() if not key.endswith(_ANY)}
        self._beginnings = {
            key.removesuffix(_ANY): one for key, one in keys.items() if key.endswith(_ANY)
        }

    def get(self, key: str) -> KnownKey | None:
        """None for a key that Apache hasn't either."""
        if key in self._keys:
            return self._keys[key]
        for beginning, one in self._beginnings.items():
            if key.startswith(beginning):
                return one
        return None


def known_keys(reader: str) -> KnownKeys:
    """Of `broker`, `standalone`, `bookie`, `autorecovery`, `proxy` or `client`."""
    return parse((files(__name__) / "keys.txt").read_text("utf-8"), reader)


def parse(text: str, reader: str) -> KnownKeys:
    """Lines of `key=default` below `[reader ...: reason]`, `[reader ...? reason]` (told alone) or
    `[reader ...! what to do]`.
    """
    found: dict[str, KnownKey] = {}
    group = None
    for line in text.splitlines():
        if line.startswith("["):
            heads, mark, reason = _split(line[1:-1])
            group = (reason, mark) if reader in heads.split() else None
        elif group is not None:
            key, _, default = line.partition("=")
            before = found[key].defaults if key in found else ()
            reason, mark = group
            found[key] = KnownKey(reason, mark == "!", (*before, default), mark == "?")
    return KnownKeys(found)


def _split(head: str) -> tuple[str, str, str]:
    mark = min((sign for sign in ":!?" if sign in head), key=head.index)
    readers, _, reason = head.partition(mark)
    return readers, mark, reason.strip()


def _plain(text: str) -> str:
    """Numbers are compared as such: `4` is `4.0`."""
    value = text.strip().lower()
    try:
        return f"{float(value):g}" if len(value) < 16 else value
    except ValueError:
        return value
