"""Write the blocking and the asyncio face of the SDK from its Trio classes.

    python tools/faces.py            writes sdk/geminga/{blocking,aio}/*.py and _bridge/threads.py,
                                     the names of geminga and geminga.schema, and the keywords
                                     of options, _options/keywords.py
    python tools/faces.py --check    fails when one of them is stale

Names, signatures and docstrings are the Trio classes'. What a method does is one of the bodies
below, or, for coroutine methods without one, asking the Trio object in its loop. A new public
method that is neither a coroutine nor a property has to be given a body here.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from face_bodies import (
    ABOUT,
    ASKS,
    BODIES,
    CLASSES,
    CONNECT,
    DOCS,
    IMPORTS,
    INITS,
    PLAIN,
    USAGE,
)
from face_names import KEYWORD_TYPES, KEYWORDS, NAMES, PUBLIC_MODULES, SCHEMA_NAMES

ROOT = Path(__file__).resolve().parent.parent
SDK = ROOT / "sdk" / "geminga"
NOTE = "Made by tools/faces.py: don't edit."


@dataclass(frozen=True)
class Face:
    """One of the two faces, and the words in which it differs."""

    package: str
    about: str
    prefix: str
    module: str
    is_async: bool
    renamed: tuple[tuple[str, str], ...]

    def name_of(self, name: str) -> str:
        """What a method of the Trio face is called here."""
        return dict(self.renamed).get(name, name)

    def spell(self, code: str) -> str:
        """Code that is written for asyncio, in this face's words."""
        if self.is_async:
            return code
        code = code.replace("async with ", "with ")
        code = code.replace("async for ", "for ").replace("async def ", "def ")
        code = re.sub(r"\bawait ", "", code)
        return code.replace("StopAsyncIteration", "StopIteration").replace(".aclose(", ".close(")


BLOCKING = Face(
    "blocking",
    "A Pulsar client for ordinary programs: every call waits in its thread (spec SDK-45).",
    "Thread",
    "threads",
    False,
    (
        ("aclose", "close"),
        ("__aiter__", "__iter__"),
        ("__anext__", "__next__"),
    ),
)
AIO = Face(
    "aio", "A Pulsar client for asyncio programs (spec SDK-45).", "Async", "asyncs", True, ()
)


class Undecided(Exception):
    """A member of a Trio class that this program doesn't know how to derive."""


Method = ast.FunctionDef | ast.AsyncFunctionDef


def class_of(name: str) -> ast.ClassDef:
    """A Trio class as it stands in its module."""
    tree = ast.parse((SDK / f"{CLASSES[name]}.py").read_text())
    return next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)


def public_methods(node: ast.ClassDef) -> Iterator[Method]:
    """Methods that a face has too."""
    for member in node.body:
        if isinstance(member, Method) and (
            not member.name.startswith("_")
            or member.name in PLAIN
            or f"{node.name}.{member.name}" in BODIES
        ):
            yield member


def passed_on(method: Method) -> str:
    """The arguments as a call passes them on."""
    arguments = method.args
    parts = [each.arg for each in arguments.posonlyargs + arguments.args if each.arg != "self"]
    if arguments.vararg:
        parts.append(f"*{arguments.vararg.arg}")
    parts += [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    if arguments.kwarg:
        parts.append(f"**{arguments.kwarg.arg}")
    return ", ".join(parts)


def body_of(owner: str, method: Method, is_property: bool) -> str:
    """What a method does, written for asyncio."""
    name = method.name
    ask = ASKS[owner].format(call=f"{name}({passed_on(method)})")
    given = BODIES.get(f"{owner}.{name}") or PLAIN.get(name)
    if given is not None:
        return given.replace("{ask}", ask)
    if is_property:
        return f"return self._inner.{name}"
    if isinstance(method, ast.AsyncFunctionDef):
        answers = method.returns is not None and ast.unparse(method.returns) != "None"
        return ("return " if answers else "") + f"await {ask}"
    raise Undecided(f"{owner}.{name} is no coroutine: say in BODIES what the faces do")


def method_text(face: Face, owner: str, method: Method) -> str:
    """A method of a face."""
    is_property = any(ast.unparse(each) == "property" for each in method.decorator_list)
    signature = f"({ast.unparse(method.args)})"
    returns = "" if method.returns is None else f" -> {ast.unparse(method.returns)}"
    opens = any(ast.unparse(each) == "opening" for each in method.decorator_list)
    is_coroutine = isinstance(method, ast.AsyncFunctionDef) and face.is_async
    text = "    @property\n" if is_property else ""
    text += "    @opening\n" if opens and is_coroutine else ""
    text += f"    {'async ' if is_coroutine else ''}def {face.name_of(method.name)}"
    text += f"{signature}{returns}:\n"
    doc = DOCS.get(f"{owner}.{method.name}") or ast.get_docstring(method, clean=False)
    if doc is not None:
        text += f'        """{doc_text(face, doc)}"""\n'
    return text + f"        {face.spell(body_of(owner, method, is_property))}\n"


def doc_text(face: Face, doc: str) -> str:
    """A docstring in the words of the face."""
    doc = doc.replace("{programs}", "tasks of the loop" if face.is_async else "threads")
    listener = "a function that runs in threads of its own"
    if face.is_async:
        listener = "a coroutine function, or a function that is short"
    doc = doc.replace("{listener}", listener)
    interrupted = "cancelling it" if face.is_async else "KeyboardInterrupt"
    return face.spell(doc.replace("{interrupted}", interrupted))


def class_text(face: Face, name: str) -> str:
    """A class of a face."""
    node = class_of(name)
    doc = DOCS.get(name) or ast.get_docstring(node, clean=False) or ""
    bases = ", ".join(ast.unparse(each) for each in node.bases)
    bases = bases.replace("Block", f"{face.prefix}Block")
    typed = bases[bases.index("[") :] if "Generic[" in bases else ""
    given = f"session: {face.prefix}Session, inner: geminga.{CLASSES[name]}.{name}{typed}"
    if name == "Client":
        given = "service_url: str, **options: Unpack[ClientKeywords]"
    heading = f"class {name}({bases})" if bases else f"class {name}"
    text = f'{heading}:\n    """{doc_text(face, doc)}"""\n\n'
    text += f"    def __init__(self, {given}) -> None:" + INITS[name].format(prefix=face.prefix)
    if name == "Client" and not face.is_async:
        text += "        self._session.opened()\n"
    text += "".join("\n" + method_text(face, name, each) for each in public_methods(node))
    return text


def module_text(face: Face, name: str) -> str:
    """The module of a class."""
    text = class_text(face, name)
    if name == "Client":
        text = CONNECT[face.package].lstrip() + "\n\n" + text
    code = ast.parse(text)
    used = {each.id for each in ast.walk(code) if isinstance(each, ast.Name)}
    lines: list[str] = []
    own = {f"{face.prefix}{each}" for each in ("Block", "Session", "Sender", "Receiver")} | {
        "Receipt"
    }
    if taken := sorted(used & own):
        lines.append(f"from geminga._bridge.{face.module} import {', '.join(taken)}")
    for each in sorted(used & CLASSES.keys() - {name}):
        lines.append(f"from geminga.{face.package}.{CLASSES[each]} import {each}")
    lines += [f"from {IMPORTS[each]} import {each}" for each in sorted(used & IMPORTS.keys())]
    shared = {name: module for module, names in NAMES.items() for name in names}
    for each in sorted(used & shared.keys() - own - IMPORTS.keys() - CLASSES.keys() - {"connect"}):
        lines.append(f"from {shared[each]} import {each} as {each}")
    if "geminga" in used:
        lines.append(f"import geminga.{CLASSES[name]}")
    lines += [f"import {each}" for each in ("asyncio", "math") if each in used]
    head = f'"""`{name}` of `geminga.{face.package}`. {NOTE}"""\n\n'
    return head + "from __future__ import annotations\n\n" + "\n".join(lines) + "\n\n\n" + text


def homes_of(face: Face | None) -> dict[str, list[str]]:
    """The public names of a face, by the modules that they are taken from; None: of Trio's."""
    if face is None:
        return {module: list(names) for module, names in NAMES.items()}
    homes: dict[str, list[str]] = {}
    own = {name: f"geminga.{face.package}.{module}" for name, module in CLASSES.items()}
    own |= {"connect": own["Client"], "Receipt": f"geminga._bridge.{face.module}"}
    for module, names in NAMES.items():
        for each in names:
            homes.setdefault(own.get(each, module), []).append(each)
    return homes


def package_text(package: str, homes: dict[str, list[str]], about: str) -> str:
    """A package's `__init__`: its public names, each imported when it is asked for."""
    names = sorted(each.rpartition(" ")[2] for listed in homes.values() for each in listed)
    typed, lazy = "", ""
    for module in sorted(homes):
        for each in sorted(homes[module]):
            typed += f"    from {module} import {each if ' as ' in each else f'{each} as {each}'}\n"
        lazy += f"    {module!r}: {tuple(sorted(homes[module]))!r},\n"
    listed = "".join(f"    {name!r},\n" for name in names)
    is_whole = package == "geminga"
    if is_whole:
        typed = "    import geminga.schema as schema  # noqa: F401\n" + typed
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    first, _, rest = about.partition("\n")
    text = (
        f'"""{first}\n\n{NOTE}\n{rest}"""\n\nfrom __future__ import annotations\n\n'
        f"{'import logging' if is_whole else ''}\nfrom typing import TYPE_CHECKING\n\n"
        f"from geminga._options.lazy import lazily\n\nif TYPE_CHECKING:\n{typed}\n"
    )
    text += f'__version__ = "{version.group(1)}"\n' if is_whole else ""
    text += f"__all__ = [\n{listed}]\n_HOMES = {{\n{lazy}}}\n"
    modules = f", {PUBLIC_MODULES!r}" if is_whole else ""
    text += f"__getattr__, __dir__ = lazily(__name__, _HOMES{modules})\n"
    return text + (
        'logging.getLogger("geminga").addHandler(logging.NullHandler())\n' if is_whole else ""
    )


def keywords_text() -> str:
    """`_options/keywords.py`: a TypedDict for each class of options."""
    imports = "".join(
        f"from {module} import {', '.join(names)}\n" for module, names in KEYWORD_TYPES.items()
    )
    text = f'"""The keywords of calls with options. {NOTE}"""\n\n'
    text += f"from __future__ import annotations\n\nfrom typing import TypedDict\n{imports}"
    for name, (module, base) in KEYWORDS.items():
        tree = ast.parse((SDK / f"{module}.py").read_text())
        options = f"{name}Options"
        node = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == options)
        text += f"\n\nclass {name}Keywords({base}, total=False):\n"
        text += f'    """Keywords of `{options}`."""\n\n'
        for each in node.body:
            # The schema is a parameter of the calls themselves: what they return is of its type.
            if isinstance(each, ast.AnnAssign) and ast.unparse(each.target) != "schema":
                text += f"    {ast.unparse(each.target)}: {ast.unparse(each.annotation)}\n"
    return text


def threads_text() -> str:
    """`_bridge/threads.py` from `_bridge/asyncs.py`."""
    text = BLOCKING.spell((SDK / "_bridge" / "asyncs.py").read_text())
    head, _, body = text.partition('"""\n')
    first = head.splitlines()[0].replace("an asyncio program", "a program's thread")
    text = f'{first}\n\nMade by tools/faces.py from `_bridge/asyncs.py`: don\'t edit.\n"""\n{body}'
    text = text.replace("A client of an asyncio program", "A client of an ordinary program")
    text = text.replace("in the program's event loop once", "in the client's own thread once")
    text = text.replace("Interrupted or cancelled, the", "Interrupted, the")
    text = re.sub(r"\bAsync(Block|Host|Session|Sender|Receiver|Waiter)", r"Thread\1", text)
    text = re.sub(r"__a(enter|exit)__", r"__\1__", text)
    text = text.replace("geminga._consuming.listening", "geminga._bridge.thread_listening")
    return text.replace("def aclose(", "def close(")


def thread_listening_text() -> str:
    """`_bridge/thread_listening.py` from `_consuming/listening.py`."""
    text = BLOCKING.spell((SDK / "_consuming" / "listening.py").read_text())
    head, _, body = text.partition('"""\n')
    first = head.partition("\n\n")[0]
    note = "Made by tools/faces.py from `_consuming/listening.py`: don't edit."
    text = f'{first}\n\n{note}\n"""\n{body}'
    text = text.replace("AbstractAsyncContextManager", "AbstractContextManager")
    return re.sub(r"Awaitable\[(\w+)\]", r"\1", text)


def formatted(text: str) -> str:
    """As ruff would have it."""
    ruff = [str(Path(sys.executable).parent / "ruff")]
    for options in (["check", "--quiet", "--fix", "--select", "I,F401,RUF100"], ["format"]):
        name = str(SDK / "generated.py")
        text = subprocess.run(
            [*ruff, *options, "--stdin-filename", name, "-"],
            input=text, capture_output=True, text=True, check=True, cwd=ROOT,
        ).stdout  # fmt: skip
    return text


def texts() -> dict[Path, str]:
    """All that is made."""
    made = {
        SDK / "_bridge" / "threads.py": threads_text(),
        SDK / "_options" / "keywords.py": keywords_text(),
        SDK / "_bridge" / "thread_listening.py": thread_listening_text(),
    }
    schema = {module: list(names) for module, names in SCHEMA_NAMES.items()}
    made[SDK / "__init__.py"] = package_text("geminga", homes_of(None), ABOUT["geminga"])
    made[SDK / "schema" / "__init__.py"] = package_text(
        "geminga.schema", schema, ABOUT["geminga.schema"]
    )
    for face in (BLOCKING, AIO):
        folder = SDK / face.package
        about = f"{face.about}\n{face.spell(USAGE.format(package=face.package))}"
        made[folder / "__init__.py"] = package_text(
            f"geminga.{face.package}", homes_of(face), about
        )
        for name, module in CLASSES.items():
            made[folder / f"{module}.py"] = module_text(face, name)
    return {path: formatted(text) for path, text in made.items()}


def main() -> int:
    """Write, or compare."""
    made = texts()
    stale = [path for path in made if not path.exists() or path.read_text() != made[path]]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run python tools/faces.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(made[path])
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
