"""The faces follow the Trio classes: names, signatures and docstrings can't differ."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import geminga
import geminga.aio
import geminga.blocking

RENAMED = {"aclose": "close", "aenter": "enter", "aexit": "exit", "aiter": "iter", "anext": "next"}
OWN_DOCS = {
    "connect": "A client for the brokers at `pulsar://host:port[,host:port...]`",
    "Client": "Creates producers, consumers and readers, which share its connections and ",
    "Consumer.receive": "The next message. Raises OperationTimeoutError after `timeout_s` seconds",
    "Producer.submit": "Queue a message for sending; wait only while there is no room for it.",
    "Producer.send_nowait": "`submit` without waiting. Also raises ProducerQueueFullError or ",
    "Receipt.message_id": "The message's id; raises its error, or InvalidStateError ",
    "Receipt.wait": "Wait until the broker has stored the message; returns its id, or raises its",
    "Receipt.add_done_callback": "Call `callback(receipt)` in the ",
}
"""Docstrings of the asyncio face that differ from the Trio face's: their common beginning."""


def works_in_the_loop(name: str) -> bool:
    """Whether a public name must have its own implementation in each face."""
    if name.startswith("Authentication"):
        # Called by the client, in its loop: the same for all faces.
        return False
    value = getattr(geminga, name)
    return name == "connect" or (
        inspect.isclass(value)
        and any(inspect.iscoroutinefunction(each) for each in vars(value).values())
    )


OWN = [name for name in geminga.__all__ if works_in_the_loop(name)]
FACES = [geminga.blocking, geminga.aio]


def public(kind: type) -> dict[str, object]:
    return {
        name: value
        for base in reversed(kind.__mro__[:-1])
        for name, value in vars(base).items()
        if not name.startswith("_") or name.strip("_") in {*RENAMED, *RENAMED.values()}
    }


def unwrapped(member: object) -> object:
    return member.fget if isinstance(member, property) else member


def blocking_name(name: str) -> str:
    if name.startswith("__"):
        return f"__{RENAMED[name.strip('_')]}__"
    return RENAMED.get(name, name)


@pytest.mark.slow
def test_generated_files_are_fresh() -> None:
    for folder in Path(__file__).resolve().parents:
        tool = folder / "tools" / "faces.py"
        if tool.exists():
            run = subprocess.run(
                [sys.executable, str(tool), "--check"], capture_output=True, text=True
            )
            assert run.returncode == 0, run.stderr
            return
    raise AssertionError("no tools/faces.py above the tests")


@pytest.mark.parametrize("face", FACES)
def test_names_are_those_of_the_trio_face(face: ModuleType) -> None:
    assert face.__all__ == geminga.__all__
    for name in face.__all__:
        is_own = getattr(face, name) is not getattr(geminga, name)
        assert is_own == (name in OWN), name
    assert {"Client", "Consumer", "Producer", "Reader", "Receipt"} < set(OWN)


def check_docs(name: str, trio: object, aio: object) -> None:
    told = " ".join((inspect.getdoc(trio) or "").split())
    here = " ".join((inspect.getdoc(aio) or "").split())
    if name in OWN_DOCS:
        assert told != here, f"{name} needs no words of its own"
        assert told.startswith(OWN_DOCS[name])
        assert here.startswith(OWN_DOCS[name])
    else:
        assert here == told, name


@pytest.mark.parametrize("name", OWN)
def test_docs_of_asyncio_are_those_of_trio(name: str) -> None:
    """Those of threads are generated from asyncio's."""
    trio, aio = getattr(geminga, name), getattr(geminga.aio, name)
    check_docs(name, trio, aio)
    if name == "connect":
        assert inspect.signature(trio) == inspect.signature(aio)
        return
    for each, member in public(trio).items():
        check_docs(f"{name}.{each}", member, inspect.getattr_static(aio, each))


def test_no_docs_are_excepted_that_are_not_there() -> None:
    for name in OWN_DOCS:
        owner, _, member = name.partition(".")
        assert owner in OWN
        assert not member or member in public(getattr(geminga, owner))


@pytest.mark.parametrize("name", [name for name in OWN if name != "connect"])
def test_members_and_signatures_are_the_same(name: str) -> None:
    trio_members = public(getattr(geminga, name))
    for face in FACES:
        kind = getattr(face, name)
        rename = blocking_name if face is geminga.blocking else str
        own = set(public(kind))
        if name == "Receipt":
            own -= {"place", "refuse", "on_done", "data", "details", "session"}
        assert own == {rename(each) for each in trio_members}
        for each, member in trio_members.items():
            here = inspect.getattr_static(kind, rename(each))
            assert isinstance(here, property) == isinstance(member, property), each
            assert bool(inspect.getdoc(here)) == bool(inspect.getdoc(member)), each
            if isinstance(member, property):
                assert inspect.signature(here.fget) == inspect.signature(unwrapped(member)), each
                continue
            if each != "__aexit__":
                assert inspect.signature(here) == inspect.signature(member), each
            is_async = inspect.iscoroutinefunction(inspect.unwrap(member))
            assert inspect.iscoroutinefunction(inspect.unwrap(here)) == (
                is_async and face is geminga.aio
            ), each


def test_package_imports_stay_lazy() -> None:
    code = "import sys, geminga; print('geminga.blocking' in sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "False"
