"""Write the API reference of the SDK from its docstrings (`make docs`): HTML in `build/docs`.

Warnings are errors: a name in `__all__` that can't be found, an annotation that can't be read, a
docstring that names a module, class or function of the reference that isn't there.
"""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from pathlib import Path

import pdoc
import pdoc.render

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "build" / "docs"
MODULES = (
    *("geminga", "geminga.aio", "geminga.blocking"),
    *("geminga.auth", "geminga.schema", "geminga.testing"),
)
SPELLED_OUT = ("collections.abc", "geminga.encryption", "geminga.options")
"""Modules whose names stand in signatures elsewhere: options are shown by name where the code says
`**options`.
"""


def missing_names(module: str) -> list[str]:
    """Names of ours that docstrings of a module's page mention and that nothing has."""
    page = (TARGET / f"{module.replace('.', '/')}.html").read_text()
    found = []
    for dotted in set(re.findall(r"<code>(geminga(?:\.\w+)+)(?:\(.*?\))?</code>", page)):
        value: object = importlib.import_module("geminga")
        for part in dotted.split(".")[1:]:
            value = getattr(value, part, None)
        if value is None:
            found.append(f"{module}: {dotted}")
    return found


def complete_namespaces() -> None:
    """Let annotations be read in every module that shows another one's options."""
    names = {}
    for spelled_out in SPELLED_OUT:
        names.update(vars(importlib.import_module(spelled_out)))
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "geminga":
            for each, value in names.items():
                if not each.startswith("_"):
                    vars(module).setdefault(each, value)


def main() -> int:
    """Exit code 1 if a page names what isn't there."""
    warnings.simplefilter("error")
    for name in MODULES:
        module = importlib.import_module(name)
        for member in getattr(module, "__all__", ()):
            getattr(module, member)  # geminga imports its names when they are asked for
    complete_namespaces()
    pdoc.render.configure(docformat="markdown", footer_text="Geminga")
    pdoc.pdoc(*MODULES, output_directory=TARGET)
    missing = [each for name in MODULES for each in missing_names(name)]
    print(*missing, sep="\n", file=sys.stderr, end="\n" if missing else "")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
