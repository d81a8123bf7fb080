"""Parses options: by any of their names, in any case, with checks of values and of unknown options.

Errors show values only if they can't be secret.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from geminga import InvalidArgumentError
from pyspark_pulsar.errors import InvalidOption

E = TypeVar("E", bound=Enum)
D = TypeVar("D", bound=bool | None)
N = TypeVar("N", bound=Enum | None)
WHOLE_MAX = (1 << 63) - 1
LIKENESS_LEAST = 0.75
"""Minimum similarity of a name to suggest (difflib): about one wrong letter in four."""
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_FLAGS = {"true": True, "false": False}


class OptionParser:
    """The options of one read or write. Get each known option, then call `close`.

    All methods take an option's name, then its aliases.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._left = {name.lower(): (name, value) for name, value in options.items()}
        self._asked: list[str] = []
        self._misplaced: dict[str, tuple[str, str]] = {}
        self._names: dict[str, str] = {}

    def text(self, *names: str) -> str | None:
        """The value, or None. Raises InvalidOption if two names of one option differ."""
        self._asked += names
        found: tuple[str, str] | None = None
        for name in names:
            here = self._left.pop(name.lower(), None)
            if here is None:
                continue
            # Spark passes names in lower case: errors show them as documented.
            value = here[1]
            if not isinstance(value, str):
                raise InvalidOption(name, f"must be a string, not {type(value).__name__}")
            if found is not None and found[1] != value:
                raise InvalidOption(name, f"conflicts with its alias {found[0]}")
            found = name, value
        if found is None:
            return None
        self._names[names[0]] = found[0]
        return found[1]

    def name_of(self, option: str) -> str:
        """The name by which the option was given, for errors."""
        return self._names.get(option, option)

    def fault(self, option: str, reason: str) -> InvalidOption:
        """The error of an option, by the name that was given."""
        return InvalidOption(self.name_of(option), reason)

    def filled(self, *names: str) -> str | None:
        """A string that isn't empty, or None. Raises InvalidOption."""
        value = self.text(*names)
        if value is not None and not value.strip():
            raise self.fault(names[0], "must not be empty")
        return value

    def flag(self, *names: str, default: D) -> bool | D:
        """`true` or `false`, or the default. Raises InvalidOption."""
        value = self.text(*names)
        if value is None:
            return default
        found = _FLAGS.get(value.strip().lower())
        if found is None:
            raise self.fault(names[0], f"must be true or false, not {value!r}")
        return found

    def whole(self, *names: str, least: int = 0, most: int = WHOLE_MAX) -> int | None:
        """A whole number of `least` to `most`, or None. Raises InvalidOption."""
        value = self.text(*names)
        if value is None:
            return None
        return self._number(names[0], value, 1, least, most)

    def size(self, *names: str, least: int = 1, most: int = WHOLE_MAX) -> int | None:
        """A number of bytes, also as 64k, 16m, 1g; or None. Raises InvalidOption."""
        value = self.text(*names)
        if value is None:
            return None
        text = value.strip().lower()
        text = text[:-1] if text[-2:-1].isalpha() and text.endswith("b") else text
        unit = text[-1:] if text[-1:].isalpha() else ""
        if unit not in _UNITS:
            raise self.fault(names[0], f"must be bytes such as 65536, 64k or 16m, not {value!r}")
        return self._number(names[0], text.removesuffix(unit), _UNITS[unit], least, most)

    def number(self, *names: str, least: float = 0.0) -> float | None:
        """A number above `least`, or None. Raises InvalidOption."""
        value = self.text(*names)
        if value is None:
            return None
        try:
            found = float(value)
        except ValueError:
            found = float("nan")
        if not least < found < float("inf"):
            raise self.fault(names[0], f"must be a number above {least:g}, not {value!r}")
        return found

    def seconds(self, *names: str, least_ms: int = 0) -> float | None:
        """Milliseconds, also with a unit (500ms, 10s, 15m, 1h), as seconds; or None. Raises
        InvalidOption.
        """
        value = self.text(*names)
        if value is None:
            return None
        text = value.strip().lower()
        for unit, factor in (("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)):
            if text.endswith(unit):
                text, scale = text.removesuffix(unit).strip(), factor
                break
        else:
            scale = 1
        return self._number(names[0], text, scale, least_ms, 1 << 42) / 1000

    def choice(self, *names: str, kind: type[E], default: N) -> E | N:
        """A member of an enum by its name, in any case, or the default. Raises InvalidOption."""
        value = self.text(*names)
        if value is None:
            return default
        for member in kind:
            if member.name == value.strip().upper().replace("-", "_"):
                return member
        known = ", ".join(member.name for member in kind)
        raise self.fault(names[0], f"must be one of {known}, not {value!r}")

    def table(self, *names: str) -> dict[str, object] | None:
        """A JSON object, or None. Raises InvalidOption."""
        value = self.text(*names)
        return None if value is None else json_object(self.name_of(names[0]), value)

    def listed(self, *names: str) -> tuple[str, ...]:
        """Strings separated by commas, without duplicates; empty if not given. Raises
        InvalidOption.
        """
        value = self.filled(*names)
        if value is None:
            return ()
        parts = [part.strip() for part in value.split(",")]
        if not all(parts):
            raise self.fault(names[0], f"contains an empty name: {value!r}")
        return tuple(dict.fromkeys(parts))

    def refuse_rest(self, prefix: str, known: Sequence[str], why: Mapping[str, str]) -> None:
        """Raises InvalidOption if options with this prefix are left. `why` has advice by names
        without the prefix; `known` are the valid names.
        """
        named = {(prefix + name).lower(): (prefix + name, text) for name, text in why.items()}
        for key, (name, _) in self._left.items():
            if key in named:
                told, text = named[key]
                raise InvalidOption(told, f"isn't supported, remove it: {text}")
            if key.startswith(prefix.lower()):
                raise _unknown(name, [prefix + each for each in known])

    def not_here(self, reason: str, *names: str) -> None:
        """Refuse these options here; `reason` says why and what to do."""
        self._misplaced.update({name.lower(): (name, reason) for name in names})
        self._asked += names

    def close(self) -> None:
        """Raises InvalidOption if unknown options are left."""
        for key, (name, _) in self._left.items():
            if key in self._misplaced:
                raise InvalidOption(*self._misplaced[key])
            raise _unknown(name, self._asked)

    def _number(self, name: str, text: str, factor: int, least: int, most: int) -> int:
        digits = text.strip().removeprefix("-")
        if not digits.isdecimal() or not digits.isascii() or len(digits) > 19:
            raise self.fault(name, f"must be a whole number, not {text!r}")
        found = int(text) * factor
        if not least <= found <= most:
            limit = f"at least {least}" if found < least else f"at most {most}"
            raise self.fault(name, f"must be {limit}, not {found}")
        return found


class OptionTable(NamedTuple):
    """The options with one prefix: Java's name of each, ours, and how it is read. `others` are
    valid too, but read elsewhere; `refused` has advice on options of Java's that aren't supported.
    """

    prefix: str
    rows: Sequence[tuple[str, str, Callable[[OptionParser, str], object]]]
    others: Sequence[str]
    refused: Mapping[str, str]

    def read(self, parser: OptionParser) -> dict[str, Any]:
        """The given options, by our names. Raises InvalidOption."""
        found = {ours: read(parser, self.prefix + java) for java, ours, read in self.rows}
        return {name: value for name, value in found.items() if value not in (None, ())}

    def refuse_rest(self, parser: OptionParser) -> None:
        """Raises InvalidOption if options with this prefix are left."""
        known = [java for java, _, _ in self.rows]
        parser.refuse_rest(self.prefix, [*known, *self.others], self.refused)

    def check(self, make: Callable[[], object]) -> None:
        """Make the SDK's options, which checks them. Raises InvalidOption, with Java's names."""
        try:
            make()
        except InvalidArgumentError as error:
            text = str(error)
            named = [java for java, ours, _ in self.rows if re.search(rf"\b{ours}\b", text)]
            for java, ours, _ in self.rows:
                text = text.replace(ours, java)
            raise InvalidOption(self.prefix + (named[0] if named else "*"), text) from None


def _unknown(name: str, known: Sequence[str]) -> InvalidOption:
    hint = nearest(name, known) or "docs/spark.md lists all under Options"
    return InvalidOption(name, f"is unknown; {hint}")


def nearest(name: str, known: Sequence[str]) -> str | None:
    """A question for the most similar name; None if none is similar. Names also match without their
    prefix.
    """
    ends = {each.lower().rpartition(".")[2]: each for each in reversed(known)}
    lowered = ends | {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=LIKENESS_LEAST)
    return f"did you mean {lowered[close[0]]}?" if close else None


def json_object(option: str, text: str) -> dict[str, object]:
    """A JSON object without duplicate names. Raises InvalidOption."""
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except _Twice as error:
        raise InvalidOption(option, f"names {error.args[0]!r} twice") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidOption(option, "must be a JSON object")
    return found


def key_paths(option: str, text: str) -> str | tuple[tuple[str, str], ...]:
    """Paths of encryption keys: one for all key names, or from a JSON object by name. Raises
    InvalidOption.
    """
    if not text.strip().startswith("{"):
        return text.strip()
    named = json_object(option, text)
    if not named or not all(isinstance(each, str) and each for each in named.values()):
        raise InvalidOption(option, "must be a path, or a JSON object of keys' names and paths")
    return tuple((name, str(path)) for name, path in named.items())


class _Twice(Exception):
    pass


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise _Twice(name)
        found[name] = value
    return found
