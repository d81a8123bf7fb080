"""The recorded mistakes fit the tree, and the runner tells what became of one."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from compat_tests.mutants import __main__ as program
from compat_tests.mutants import runner
from compat_tests.mutants.records import ROOT, Mutant, Stale, applied, faults, load
from compat_tests.mutants.runner import Copy

PRODUCT = "def double(x: int) -> int:\n    return 2 * x\n"
TESTS = """import threading
from product import double
def test_hangs_on_zero():
    if double(1) == 0: threading.Event().wait()
def test_doubles():
    assert double(2) == 4
"""
RECORD = Mutant(
    "adds", "product.py", "return 2 * x", "return x + 2", "a wrong sum", ("test_product.py",)
)
MISSED = replace(RECORD, name="missed", after="return x << 1")
FOUND = replace(RECORD, name="found", after="return 3 * x")
HANGS = replace(RECORD, name="hangs", after="return 0 * x")


@pytest.mark.slow
def test_every_record_fits_the_tree() -> None:
    """One that does not: the code it changes, or the test that found it, has been changed. Change
    the record so that it makes the same mistake, then `make mutants ARGS="--only NAME"`.
    """
    mutants = load()
    assert len(mutants) >= 100
    assert faults(mutants) == []
    assert all(mutant.why for mutant in mutants)


def test_no_record_is_of_a_test() -> None:
    assert [m.name for m in load() if "_tests/" in m.file or m.file.startswith("compat_")] == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "product.py").write_text(PRODUCT)
    (root / "test_product.py").write_text(TESTS)
    (root / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (replace(RECORD, before="return 3 * x"), "0 times, not once"),
        (replace(RECORD, before="x"), "times, not once"),
        (replace(RECORD, after="return 2 *  x"), "changes nothing"),
        (replace(RECORD, after="return 2 *"), "no Python"),
        (replace(RECORD, tests=()), "names no test"),
        (replace(RECORD, tests=("test_gone.py",)), "there is no test_gone.py"),
        (replace(RECORD, tests=("test_product.py::test_gone",)), "has no test test_gone"),
        (replace(RECORD, file="gone.py"), "there is no gone.py"),
    ],
)
def test_a_record_that_does_not_fit_is_told(record: Mutant, said: str, tree: Path) -> None:
    [fault] = faults([record], tree)
    assert fault.startswith("adds: ")
    assert said in fault


def test_two_records_of_one_name(tree: Path) -> None:
    assert faults([RECORD, RECORD], tree) == ["adds: two records have that name"]
    assert faults([RECORD, MISSED], tree) == []
    with pytest.raises(Stale, match="change the record"):
        applied(RECORD, "")


@pytest.mark.slow
def test_what_becomes_of_a_mistake(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "TEST_LIMIT_S", 2)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # most of the time goes into them
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_timeout")
    copy = Copy(tree, tmp_path / "copy")
    records = [FOUND, HANGS, MISSED, replace(FOUND, name="none", tests=("pytest.ini",))]
    outcomes = {record.name: copy.run_with(record) for record in records}
    assert outcomes["found"].found_by == "test_product.py::test_doubles"
    assert outcomes["hangs"].found_by == "test_product.py::test_hangs_on_zero hung"
    assert outcomes["missed"].passed
    assert outcomes["none"].broken
    assert (tree / "product.py").read_text() == PRODUCT
    assert (copy.folder / "product.py").read_text() == PRODUCT
    explained = replace(MISSED, survives="two ways to say the same")
    assert program._report([FOUND, HANGS, explained], outcomes, 1.0) == 0
    assert "3 mistakes: 2 found, 1 survived, 0 not tried" in capsys.readouterr().out
    for wrong in (MISSED, replace(FOUND, survives="it can't be found"), records[3]):
        assert program._report([wrong], outcomes, 1.0) == 1


@pytest.mark.slow
def test_a_copy_tests_itself(tmp_path: Path) -> None:
    Copy(ROOT, tmp_path / "copy").check()
