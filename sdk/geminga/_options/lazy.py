"""Packages that import a public name on use, so that importing the package is cheap."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence

Names = tuple[Callable[[str], object], Callable[[], list[str]]]


def lazily(package: str, homes: Mapping[str, Sequence[str]], modules: Sequence[str] = ()) -> Names:
    """`__getattr__` and `__dir__` of a package. `homes` has the names of each module, also as
    "NAME as OTHER"; `modules` are the package's public modules.
    """
    found: dict[str, tuple[str, str]] = {}
    for home, names in homes.items():
        for each in names:
            original, _, name = each.partition(" as ")
            found[name or original] = home, original

    def get(name: str) -> object:
        if name == "schema" and name in modules:
            return importlib.import_module(f"{package}.schema")
        if name not in found:
            hint = f": import {package}.{name} first" if name in modules else ""
            short = name.removesuffix("Schema")  # as the official client names them
            hint = f"; did you mean {short}?" if short != name and short in found else hint
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        home, original = found[name]
        module = importlib.import_module(home)
        value: object = getattr(module, original)
        if name in ("connect", "Client"):
            importlib.import_module("geminga._options.signatures").show_options(module)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        own = vars(sys.modules[package])
        return sorted([*found, *modules, *(name for name in own if name[:2] == "__")])

    return get, listed
