"""Write what the SDK has twice: the blocking face, lists of names, keywords of options.

    python tools/faces.py            writes sdk/geminga/blocking/*.py and what it needs in _bridge,
                                     the names of geminga, of its faces and of geminga.schema, and
                                     the keywords of options, _options/keywords.py
    python tools/faces.py --check    fails when one of them is stale

The asyncio face, `aio/*.py` and `_bridge/asyncs.py`, is written by hand; the blocking one is made
from it by replacing words. Where no rule does it, OWN_WORDS has what to replace.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from face_names import (
    ABOUT,
    ADMIN_CLIENTS,
    ADMIN_NAMES,
    ADMIN_USAGE,
    CLASSES,
    KEYWORD_TYPES,
    KEYWORDS,
    NAMES,
    PUBLIC_MODULES,
    SCHEMA_NAMES,
    USAGE,
)

ROOT = Path(__file__).resolve().parent.parent
SDK = ROOT / "sdk" / "geminga"
NOTE = "Made by tools/faces.py: don't edit."

OWN_WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "client": (
        ("-> Connecting[Client]:", "-> Client:"),
        (
            """; closed at the block's end.
    If it is awaited instead of entered, it is a `Client` that lasts until its `aclose`.
""",
            """, to be closed by `close` or
    as a context manager.
""",
        ),
        (
            """
    geminga.client.connect(service_url, **options)

    async def opened() -> Client:
        client = Client(service_url, **options)
        await client._session.opened()
        return client

    return Connecting(lambda: Opening(opened()), opened)
""",
            """
    return Client(service_url, **options)
""",
        ),
        ("tasks of the loop may use it.", "threads may use it."),
        (
            """
        self._session = AsyncSession(geminga.client.connect(service_url, **options))
""",
            """
        self._session = ThreadSession(geminga.client.connect(service_url, **options))
        self._session.opened()
""",
        ),
        (
            "a coroutine function, or a function that is short",
            "a function that runs in threads of its own",
        ),
    ),
    "consumer": (("cancelling it loses", "KeyboardInterrupt loses"),),
}
"""What no rule turns: words of a module of `geminga.aio`, and those of the blocking one."""


ADMIN_WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "aio_client": (
        ("-> Connecting[AdminClient]:", "-> AdminClient:"),
        (
            """; closed at the block's end. If it is awaited instead of entered, it is
    an `AdminClient` that lasts until its `aclose`.
""",
            """, to be closed by `close` or as a context manager.
""",
        ),
        (
            """
    geminga._admin.client.connect(service_url, **options)

    async def opened() -> AdminClient:
        client = AdminClient(service_url, **options)
        await client._session.opened()
        return client

    return Connecting(lambda: Opening(opened()), opened)
""",
            """
    return AdminClient(service_url, **options)
""",
        ),
        ("of tasks may use it", "of threads may use it"),
        (
            "        super().__init__(self._ask)\n",
            "        self._session.opened()\n        super().__init__(self._ask)\n",
        ),
    ),
    "families/__init__": (),
}
"""The same of `geminga._admin` and `geminga._admin.blocking`."""


class MissingWords(Exception):
    """The asyncio face no longer has words that OWN_WORDS replaces."""


def in_threads(code: str) -> str:
    """Code that is written for asyncio, for threads."""
    code = re.sub(r"\b(?:async (?=with |for |def )|await )", "", code)
    code = re.sub(r"__a(enter|exit|iter|next)__", r"__\1__", code)
    code = re.sub(r"\bAsync(Block|Calls|Host|Session|Sender|Receiver|Waiter)", r"Thread\1", code)
    code = code.replace("StopAsyncIteration", "StopIteration")
    return re.sub(r"(\.|def )aclose\(", r"\1close(", code)


def blocking_text(name: str, module: str) -> str:
    """A module of `geminga.blocking` from that of `geminga.aio`."""
    path = SDK / "aio" / f"{module}.py"
    _, _, body = path.read_text().partition('"""\n')
    for words, own in OWN_WORDS.get(module, ()):
        if body.count(words) != 1:
            raise MissingWords(f"{path.relative_to(ROOT)} has not once what OWN_WORDS has: {words}")
        body = body.replace(words, own)
    body = in_threads(body).replace("    @opening\n", "")
    body = body.replace("geminga._bridge.asyncs", "geminga._bridge.threads")
    body = body.replace("geminga.aio.", "geminga.blocking.")
    note = NOTE.replace(":", " from `aio`:")
    return f'"""`{name}` of `geminga.blocking`. {note}"""\n{body}'


def blocking_admin_text(name: str) -> str:
    """A module of `geminga._admin.blocking` from that of `geminga._admin`."""
    _, _, body = (SDK / "_admin" / f"{name}.py").read_text().partition('"""\n')
    for words, own in ADMIN_WORDS.get(name, ()):
        if body.count(words) != 1:
            raise MissingWords(f"_admin/{name}.py has not once what ADMIN_WORDS has: {words}")
        body = body.replace(words, own)
    body = in_threads(body)
    threaded = "BlockingFamily as Family, SendBlocking as Send"
    body = re.sub(r"\bFamily, Send$", threaded, body, flags=re.MULTILINE)
    body = re.sub(r"import Send$", "import SendBlocking as Send", body, flags=re.MULTILINE)
    body = body.replace("rest.Family)", "rest.BlockingFamily)")
    body = re.sub(r"geminga\._admin\.(families|policies)\b", r"geminga._admin.blocking.\1", body)
    body = body.replace("geminga._bridge.asyncs", "geminga._bridge.threads")
    return f'"""`geminga._admin.{name}` of the blocking face.\n\n{NOTE}\n"""\n{body}'


def admin_texts() -> dict[Path, str]:
    """The admin client: its blocking form, and the names of all three."""
    folder = SDK / "_admin"
    names = [
        "policies",
        *(f"families/{each.stem}" for each in sorted(folder.glob("families/*.py"))),
    ]
    made = {folder / "blocking" / f"{name}.py": blocking_admin_text(name) for name in names}
    made[folder / "blocking" / "client.py"] = blocking_admin_text("aio_client")
    for face, client in ADMIN_CLIENTS.items():
        package = f"geminga.{face}admin"
        base = "geminga._admin.blocking" if "blocking" in face else "geminga._admin"
        homes = {
            re.sub(r"^geminga\._admin\.(families|policies)\b", rf"{base}.\1", module): list(listed)
            for module, listed in ADMIN_NAMES.items()
        }
        homes[client] = ["AdminClient", "connect"]
        usage = ADMIN_USAGE.format(package=package)
        usage = in_threads(usage) if "blocking" in face else usage
        made[SDK.joinpath(*package.split(".")[1:]).with_suffix(".py")] = package_text(
            package, homes, ABOUT["geminga.admin"] + usage
        )
    return made


def homes_of(face: str, bridge: str) -> dict[str, list[str]]:
    """The public names of a derived face, by the modules that they are taken from."""
    homes: dict[str, list[str]] = {}
    own = {name: f"geminga.{face}.{module}" for name, module in CLASSES.items()}
    own |= {"connect": own["Client"], "Receipt": f"geminga._bridge.{bridge}"}
    for module, names in NAMES.items():
        for each in names:
            homes.setdefault(own.get(each, module), []).append(each)
    return homes


def _tuple(names: list[str]) -> str:
    """A tuple's text; a long one has several names in a line, which the formatter leaves so."""
    if len(names) <= 3:
        return repr(tuple(names))
    lines = textwrap.wrap(" ".join(each.replace(" ", "\0") for each in names), 60)
    rows = [tuple(word.replace("\0", " ") for word in line.split(" ")) for line in lines]
    return "(" + "".join(f"*{row!r}," for row in rows) + ")"


def package_text(package: str, homes: dict[str, list[str]], about: str) -> str:
    """A package's `__init__`: its public names, each imported when it is asked for."""
    names = sorted(each.rpartition(" ")[2] for listed in homes.values() for each in listed)
    typed, lazy = "", ""
    for module in sorted(homes):
        for each in sorted(homes[module]):
            typed += f"    from {module} import {each if ' as ' in each else f'{each} as {each}'}\n"
        lazy += f"    {module!r}: {_tuple(sorted(homes[module]))},\n"
    listed = "".join(f"    {name!r},\n" for name in names)
    is_whole = package == "geminga"
    if is_whole:
        typed = "    from geminga import schema as schema\n" + typed
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
    text = in_threads((SDK / "_bridge" / "asyncs.py").read_text())
    head, _, body = text.partition('"""\n')
    first = head.splitlines()[0].replace("an asyncio program", "a program's thread")
    text = f'{first}\n\nMade by tools/faces.py from `_bridge/asyncs.py`: don\'t edit.\n"""\n{body}'
    text = text.replace("A client of an asyncio program", "A client of an ordinary program")
    text = text.replace("in the program's event loop once", "in the client's own thread once")
    text = text.replace("Interrupted or cancelled, the", "Interrupted, the")
    return text.replace("geminga._consuming.listening", "geminga._bridge.thread_listening")


def thread_listening_text() -> str:
    """`_bridge/thread_listening.py` from `_consuming/listening.py`."""
    text = in_threads((SDK / "_consuming" / "listening.py").read_text())
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
    for package, names in (("geminga", NAMES), ("geminga.schema", SCHEMA_NAMES)):
        homes = {module: list(listed) for module, listed in names.items()}
        folder = SDK.joinpath(*package.split(".")[1:])
        made[folder / "__init__.py"] = package_text(package, homes, ABOUT[package])
    for face, bridge in (("aio", "asyncs"), ("blocking", "threads")):
        usage = USAGE.format(package=face)
        about = f"{ABOUT[f'geminga.{face}']}\n{in_threads(usage) if face == 'blocking' else usage}"
        made[SDK / face / "__init__.py"] = package_text(
            f"geminga.{face}", homes_of(face, bridge), about
        )
    for name, module in CLASSES.items():
        made[SDK / "blocking" / f"{module}.py"] = blocking_text(name, module)
    made |= admin_texts()
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
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(made[path])
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
