"""The public names of `geminga` and how CHANGELOG.md keeps up with them.

    python tools/public_names.py              prints every name, with its parameters
    python tools/public_names.py --check      fails where CHANGELOG.md omits a change
    python tools/public_names.py --release    at a release: writes tools/public_names.txt

`tools/public_names.txt` holds the names of the last release. What is different in the code
must stand in the "Unreleased" section of CHANGELOG.md, each name in backquotes: the name that came
or went, or the parameter of a function that stays. Members of a class that came or went go with it.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASED = ROOT / "tools" / "public_names.txt"
CHANGELOG = ROOT / "CHANGELOG.md"
FACES = (
    *("geminga", "geminga.aio", "geminga.blocking", "geminga.schema", "geminga.testing"),
    *("geminga.admin", "geminga.aio.admin", "geminga.blocking.admin", "geminga.otel"),
    *("geminga.pulsar", "geminga.pulsar.asyncio", "geminga.pulsar.exceptions"),
    "geminga.pulsar.schema",
)
MADE_BY_THE_CLIENT = {
    *("Client", "Consumer", "Message", "Producer", "Reader", "Receipt"),
    *("EntryBatch", "ReceivedEntry", "TableChanges", "TableView"),
}
"""Classes that no program constructs: their parameters are private."""

MARKS: dict[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def parameters(function: Callable[..., object]) -> str:
    """`(payload, *, key)`, options by name in full; nothing where it has no signature to see."""
    try:
        given = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return ""
    names = []
    by_name = []
    for each in given:
        keywords = re.fullmatch(r"Unpack\[(\w+)\]", str(each.annotation))
        if keywords is not None:
            own = vars(sys.modules[inspect.unwrap(function).__module__])
            by_name += own[keywords[1]].__annotations__
        elif each.kind is each.KEYWORD_ONLY:
            by_name.append(each.name)
        elif each.name != "self":
            names.append(MARKS.get(each.kind, "") + each.name)
    if by_name and not any(name.startswith("*") for name in names):
        names.append("*")
    return f"({', '.join([*names, *sorted(by_name)])})"


def members(kind: type) -> Iterator[str]:
    """Public methods, properties, fields and enum members that a class of ours has, inherited ones
    too.
    """
    found: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0].startswith("geminga"):
            found.update(vars(base))
            found.update(dict.fromkeys(vars(base).get("__annotations__", {})))
    for name in sorted(found):
        value = found[name]
        if isinstance(value, staticmethod | classmethod):
            value = getattr(kind, name)
        if not name.startswith("_"):
            yield name + (parameters(value) if inspect.isroutine(value) else "")


def names() -> Iterator[str]:
    """One line for each public name. A name that a face shares with `geminga` has no members there:
    they stand once.
    """
    shared: set[int] = set()
    for face in FACES:
        module = importlib.import_module(face)
        for name in sorted(module.__all__):
            value = getattr(module, name)
            dotted = f"{face}.{name}"
            if id(value) in shared or not (inspect.isclass(value) or inspect.isroutine(value)):
                yield dotted
                continue
            shared.add(id(value))
            is_plain = inspect.isclass(value) and issubclass(value, enum.Enum)
            is_made = name in MADE_BY_THE_CLIENT
            yield dotted + ("" if is_plain or is_made else parameters(value))
            if inspect.isclass(value):
                yield from (f"{dotted}.{member}" for member in members(value))
    auth = importlib.import_module("geminga.auth")
    for name, value in sorted(vars(auth).items()):
        if inspect.isfunction(value) and value.__module__ == auth.__name__ and name[0] != "_":
            yield f"geminga.auth.{name}{parameters(value)}"


def entries(lines: list[str]) -> dict[str, str]:
    """Each dotted name, and each parameter as a member of its function, with its whole line. A
    module counts as one name with members, so that a new one is told as one.
    """
    found = {}
    for line in lines:
        dotted, _, rest = line.partition("(")
        found[dotted] = line
        found.setdefault(dotted.rpartition(".")[0], "")
        for name in re.findall(r"\w+", rest):
            found[f"{dotted}.{name}"] = ""
    return found


def changes(before: list[str], now: list[str]) -> list[str]:
    """Dotted names that came, went or have other parameters; not what goes with a changed owner."""
    old, new = entries(before), entries(now)
    differ = {name for name in old.keys() | new.keys() if (name in old) != (name in new)}
    moved = {
        name
        for name in old.keys() & new.keys()
        if old[name] != new[name] and not any(each.rpartition(".")[0] == name for each in differ)
    }
    owners = {name for name in differ if name.rpartition(".")[0] in differ}
    return sorted((differ - owners) | moved)


def unreleased(changelog: str) -> str:
    """The section of CHANGELOG.md that tells what the next release changes."""
    found = re.search(r"^## \[?Unreleased\]?.*?$(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    return found[1] if found else ""


def omitted(before: list[str], now: list[str], changelog: str) -> list[str]:
    """Changes whose last name the "Unreleased" section doesn't tell."""
    told = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", unreleased(changelog)))))
    return [name for name in changes(before, now) if name.rpartition(".")[2] not in told]


def main() -> int:
    """Exit code 1 if `--check` finds a change that CHANGELOG.md omits."""
    now = [*names()]
    if "--release" in sys.argv[1:]:
        RELEASED.write_text("\n".join(now) + "\n")
        return 0
    if "--check" not in sys.argv[1:]:
        print(*now, sep="\n")
        return 0
    missing = omitted(RELEASED.read_text().splitlines(), now, CHANGELOG.read_text())
    for name in missing:
        print(f"{name} changed: tell it under Unreleased in CHANGELOG.md", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
