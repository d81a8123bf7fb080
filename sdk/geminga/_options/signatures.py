"""Options by name in run-time signatures.

Type checkers, and editors with one, read `**options: Unpack[ClientKeywords]`. Tools that inspect
live objects (`help`, `inspect.signature`, completion in IPython and Jupyter) would show `**options`
only: this module provides names and defaults.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from types import FunctionType, ModuleType

import geminga._admin.options
import geminga.options

_UNPACK = "Unpack["


def show_options(module: ModuleType) -> None:
    """Set the full signatures of a module's functions and classes."""
    for value in list(vars(module).values()):
        if getattr(value, "__module__", "").startswith("geminga."):
            functions = vars(value).values() if isinstance(value, type) else (value,)
            for function in functions:
                if isinstance(function, FunctionType):
                    _complete(function)


def _complete(function: FunctionType) -> None:
    annotations = map(str, function.__annotations__.values())
    name = next((text for text in annotations if text.startswith(_UNPACK)), None)
    if name is None or hasattr(function, "__signature__"):
        return
    name = name.removeprefix(_UNPACK).removesuffix("]")
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    names = inspect.unwrap(function).__globals__
    kind = name.replace("Keywords", "Options")
    home = geminga._admin.options if kind == "AdminOptions" else geminga.options
    named = _parameters(names[name], getattr(home, kind, None))
    whole = signature.replace(parameters=[*own, *named])
    function.__signature__ = whole  # type: ignore[attr-defined]


def _parameters(keywords: type, options: type | None) -> Iterator[inspect.Parameter]:
    defaults = {} if options is None else dict(_defaults(options))
    for option, annotation in keywords.__annotations__.items():
        yield inspect.Parameter(
            option,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(option),
            annotation=getattr(annotation, "__forward_arg__", annotation),
        )


def _defaults(options: type) -> Iterator[tuple[str, object]]:
    for each in dataclasses.fields(options):
        if each.default is not dataclasses.MISSING:
            yield each.name, each.default
        elif each.default_factory is not dataclasses.MISSING:
            yield each.name, each.default_factory()
