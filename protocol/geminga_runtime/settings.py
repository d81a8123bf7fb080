"""Typed settings by Apache's configuration keys: a properties file, the environment, overrides
(spec OP-07).

A group of settings is a frozen dataclass whose fields are made by `setting`; a configuration is a
frozen dataclass that holds one of each of its groups.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, field, fields, replace
from difflib import get_close_matches
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

_log = logging.getLogger(__name__)

ENVIRONMENT_PREFIX = "PULSAR_PREFIX_"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LINE_END = re.compile(r"\r\n?|\n")
_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)

_LIKENESS = 0.93
"""Two letters in thirty. No key of Apache's files that isn't used is so close to one that is."""
_COMPARED_KEYS_MAX = 1000
"""Each takes some 20 µs."""

_changes = count(1)
_overwritten = 0
"""The last one of `_changes`; of all brokers of the process."""

Config = TypeVar("Config")
Origins = Mapping[str, tuple[str, str]]
"""Key -> value as text, and its origin (a file, the environment, ...)."""


class ConfigError(Exception):
    """Settings are invalid. The text has a line for each, which names the key and its origin."""


ERRORS_MAX = 20
"""Wrong settings that are told at once."""
SHOWN_MAX = 200
"""Characters of a wrong value that its error repeats."""
LONG_MAX = (1 << 63) - 1

SECRET = "*****"
"""Shown in place of a secret's value."""


def setting(
    key: str,
    default: Any,
    *,
    at_least: float = 0,
    at_most: float = math.inf,
    secret: bool = False,
    less_is_off: bool = False,
) -> Any:
    """A field that is read from `key`; numbers are checked against the bounds, secrets are never
    shown. With `less_is_off` a number below `at_least` is read as `at_least`.
    """
    metadata = {"key": key, "min": at_least, "max": at_most, "secret": secret, "off": less_is_off}
    return field(default=default, metadata=metadata, repr=not secret)


def limit(key: str, default: Any, *, at_least: float = 0) -> Any:
    """The same, off at `at_least` and below, which are read as `at_least`."""
    return setting(key, default, at_least=at_least, less_is_off=True)


def listed(text: str) -> tuple[str, ...]:
    """The parts of a value between commas, empty ones left out."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def gather(
    path: Path | None,
    environment: Mapping[str, str],
    overrides: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
    overrides_from: str = "command line",
) -> dict[str, tuple[str, str]]:
    """Values as text: defaults, then a file, the environment, overrides; later ones win.

    Errors name `overrides_from` as the overrides' place. Raises ConfigError when the file can't be
    read.
    """
    values: dict[str, tuple[str, str]] = {}
    for key, value in (defaults or {}).items():
        values[key] = (value, "defaults")
    if path is not None:
        for key, value in _read(path).items():
            values[key] = (value, str(path))
    for name, value in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            values[name.removeprefix(ENVIRONMENT_PREFIX)] = (value, f"environment {name}")
    for key, value in (overrides or {}).items():
        values[key] = (value, overrides_from)
    return values


def use_older_keys(values: dict[str, tuple[str, str]], older: Mapping[str, Sequence[str]]) -> None:
    """Take over what stands under an older name of a key, and drop that. As at Apache's, an older
    number wins if it is positive, an older text if there is none under the key itself.
    """
    for key, names in older.items():
        for name in names:
            text, origin = values.pop(name, ("", ""))
            is_set = bool(values.get(key, ("", ""))[0].strip())
            if _is_positive(text) or (text.strip() and not _is_number(text) and not is_set):
                values[key] = (text, origin)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_positive(text: str) -> bool:
    return _is_number(text) and float(text) > 0


def build(config_type: type[Config], values: Origins, reader: str = "") -> Config:
    """The configuration. Keys that no group uses are named in one warning, with the known key that
    one is close to.

    With a `reader` of `known_keys`, keys that only Apache's servers use are told apart, if their
    value isn't Apache's default. Raises ConfigError, which tells ERRORS_MAX wrong values at most;
    if there are none, also for what would be dangerous to ignore.
    """
    used: set[str] = set()
    wrong: list[str] = []
    groups = {}
    for part in fields(config_type):  # type: ignore[arg-type]
        group_type: type[Any] = part.default_factory  # type: ignore[assignment]
        given = {}
        for one in fields(group_type):
            key = one.metadata["key"]
            used.add(key)
            if key in values:
                try:
                    given[one.name] = _parse(one, *values[key])
                except ConfigError as error:
                    wrong.append(str(error))
        groups[part.name] = group_type(**given)
    if wrong:
        more = [f"{len(wrong) - ERRORS_MAX} more are wrong"] if len(wrong) > ERRORS_MAX else []
        raise ConfigError("\n".join([*wrong[:ERRORS_MAX], *more]))
    unused = sorted(values.keys() - used)
    if unused and reader:
        unused = _without_known(unused, values, reader)
    if unused:
        near = _misspelt(unused, used)
        shown = [f"{key} (did you mean {near[key]}?)" if key in near else key for key in unused]
        _log.warning("configuration keys that are not used: %s", ", ".join(shown))
    return config_type(**groups)


def _without_known(unused: list[str], values: Origins, reader: str) -> list[str]:
    """The keys that Apache hasn't either; its own are told. Raises ConfigError."""
    from geminga_runtime.known_keys import known_keys

    known = known_keys(reader)
    unknown, without_effect = [], []
    for key in unused:
        one = known.get(key)
        text, origin = values[key]
        if one is None:
            unknown.append(key)
        elif one.is_default(text):
            continue
        elif one.refused:
            raise ConfigError(f"{key} in {origin}: {text!r} is not supported: {one.reason}")
        elif one.alone:
            _log.warning("%s=%s in %s has no effect: %s", key, text, origin, one.reason)
        else:
            without_effect.append(f"{key} ({one.reason})")
    if without_effect:
        told = ", ".join(without_effect)
        _log.warning("Apache's configuration keys that have no effect here: %s", told)
    return unknown


def _misspelt(unused: list[str], used: set[str]) -> dict[str, str]:
    """Unused keys that are nearly used ones, with these."""
    by_lower = {key.lower(): key for key in sorted(used)}
    near = {}
    for key in unused[:_COMPARED_KEYS_MAX]:
        if found := get_close_matches(key.lower(), by_lower, 1, _LIKENESS):
            near[key] = by_lower[found[0]]
    return near


def written(config: object) -> dict[str, str]:
    """Every setting under its key, written as in a file, without secrets."""
    return {
        one.metadata["key"]: _shown(one, getattr(group, one.name))
        for group in (getattr(config, part.name) for part in fields(config))  # type: ignore[arg-type]
        for one in fields(group)
    }


def parse_setting(config: object, key: str, text: str, origin: str) -> object:
    """The typed value of a setting from text, as from a file. Raises KeyError (no such key),
    ConfigError.
    """
    return _parse(_found(config, key)[1], text, origin)


def current(config: object, key: str) -> object:
    """The value of a setting. Raises KeyError."""
    group, one = _found(config, key)
    return getattr(group, one.name)


def overwrite(config: object, key: str, value: object) -> None:
    """Change a setting of a running process, in place: whoever reads it when it is used has the new
    value from now on; whoever has copied it must be told. Raises KeyError.
    """
    global _overwritten
    group, one = _found(config, key)
    object.__setattr__(group, one.name, value)
    _overwritten = next(_changes)


def overwritten() -> int:
    """How often a setting of a running process was changed: what was made of the settings before is
    to be made anew.
    """
    return _overwritten


def with_setting(config: Config, key: str, value: object) -> Config:
    """A copy of the configuration with another value of one setting. Raises KeyError."""
    group, one = _found(config, key)
    given: Any = config
    changed = replace(group, **{one.name: value})
    parts = {part.name: getattr(config, part.name) for part in fields(given)}
    found: Config = replace(
        given, **{name: changed if part is group else part for name, part in parts.items()}
    )
    return found


def _found(config: Any, key: str) -> tuple[Any, Field[Any]]:
    """The group that has the setting, and its field."""
    for part in fields(config):
        group = getattr(config, part.name)
        for one in fields(group):
            if one.metadata["key"] == key:
                return group, one
    raise KeyError(key)


def check_choice(values: Origins, key: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raises ConfigError if `value` is not allowed."""
    if value not in allowed:
        origin = values[key][1]
        raise ConfigError(f"{key} in {origin}: {value!r} is none of {', '.join(allowed)}")


def _read(path: Path) -> dict[str, str]:
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"configuration file {path} can't be read: {why}") from error


def _parse(one: Field[Any], text: str, origin: str) -> object:
    """The typed value; an empty one means the default, as in Apache's files."""
    key = one.metadata["key"]
    if text == "":
        return one.default
    parse = _PARSERS[type(one.default)]
    try:
        value = parse(text.strip())
    except ValueError as error:
        shown = text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
        raise ConfigError(f"{key} in {origin}: {shown!r} is not {error}") from error
    low, high = one.metadata["min"], one.metadata["max"]
    if isinstance(value, int | float) and value < low and one.metadata["off"]:
        return type(value)(low)
    if isinstance(value, int | float) and not low <= value <= high:
        bounds = f"at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
        raise ConfigError(f"{key} in {origin}: {text} is out of bounds, it must be {bounds}")
    return value


def _parse_bool(text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise ValueError("true or false")


def _parse_int(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError("a whole number") from None
    if abs(value) > LONG_MAX:
        raise ValueError("a whole number of 64 bits")
    return value


def _parse_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("a number") from None
    if not math.isfinite(value):
        raise ValueError("a finite number")
    return value


def _parse_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text of whole characters") from None
    return text


_PARSERS: Mapping[type, Callable[[str], object]] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
    str: _parse_text,
}


def _shown(one: Field[Any], value: object) -> str:
    return SECRET if one.metadata["secret"] and value else written_value(value)


def written_value(value: object) -> str:
    """A setting's value as in a file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of a Java properties file; the last value of a repeated key, as in Java.

    Follows `java.util.Properties.load`: `#` and `!` start comments, a key ends at `=`, `:` or blank
    space, a backslash at the end of a line joins the next one, the usual escapes (also `\\u` and
    four digits) are decoded.
    """
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        if match is not None:
            values[_unescape(match[1])] = _unescape(match[2]).rstrip()
    return values


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks, continuations joined."""
    pending = ""
    for raw in _LINE_END.split(text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return _PLAIN_ESCAPES.get(code, code)

    return _PAIR.sub(_joined, _ESCAPE.sub(replace, text))


def _joined(pair: re.Match[str]) -> str:
    """The character of two escapes: Java's are of UTF-16."""
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")
