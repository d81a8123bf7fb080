"""The keys of Apache's configuration files, from its classes.

`python -m compat_tests.configuration.record` asks them again, and writes apache_keys.txt.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from compat_tests.apache.jars import run_java, tools_jars

LIST = Path(__file__).parent / "apache_keys.txt"
_FLAGS = ("-XX:ActiveProcessorCount=2",)
"""Numbers of threads and sizes of caches depend on the machine."""


class Key(NamedTuple):
    """A key as Apache's class has it; no default is an empty one."""

    name: str
    kind: str = ""
    flags: frozenset[str] = frozenset()
    default: str = ""

    @property
    def dynamic(self) -> bool:
        """Whether Apache's broker takes a change while it runs."""
        return "dynamic" in self.flags


Record = dict[str, dict[str, Key]]
"""By file; what the providers of authentication read stands under `authentication`."""


def keys_of_apache() -> str:
    """Takes some seconds. Raises PeerMissing."""
    return run_java("ConfigKeys", [str(tools_jars())], flags=_FLAGS)


def parse(text: str) -> Record:
    """The record from its text."""
    found: Record = {}
    for line in text.splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
            continue
        name, kind, flags, default = (*line.split("\t"), "", "", "")[:4]
        section[name] = Key(name, kind, frozenset(filter(None, flags.split(","))), default)
    return found


def main() -> None:
    """Write the record."""
    LIST.write_text(keys_of_apache())


if __name__ == "__main__":
    main()
