"""Wheel and source package: they say what PyPI wants to know, have in them what they need, and what
they install serves, on each Python that we name and with the oldest libraries that we name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compat_tests.missing import skipped_without
from compat_tests.processes import ROOT, free_port, guarded, wait_until
from compat_tests.pythons import VERSIONS, python_of

NAMES = {"geminga", "geminga_bookie", "geminga_broker", "geminga_protocol", "geminga_proxy"}
NAMES |= {"geminga_runtime", "pyspark_pulsar"}
TYPED = NAMES
READY = re.compile(r"^ready in ", re.M)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both."""
    folder = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def wheel_of(packages: Path) -> Path:
    (wheel,) = packages.glob("*.whl")
    return wheel


@pytest.mark.slow
def test_what_pypi_asks(packages: Path) -> None:
    files = [str(path) for path in sorted(packages.iterdir())]
    assert len(files) == 2
    command = [sys.executable, "-m", "twine", "check", "--strict", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_in_the_wheel(packages: Path) -> None:
    with zipfile.ZipFile(wheel_of(packages)) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == NAMES
    assert not [name for name in names if "/_tests/" in name or "__pycache__" in name]
    assert {f"{name}/py.typed" for name in TYPED} <= set(names)
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    expected = {
        name.partition("/")[2]
        for name in tracked
        if name.count("/") > 1 and name.split("/")[1] in NAMES and "/_tests/" not in name
    }
    assert expected <= set(names), "files of the packages that the wheel leaves out"


@pytest.mark.slow
def test_the_source_package_builds_the_same_wheel(packages: Path, tmp_path: Path) -> None:
    (source,) = packages.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (again,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(again) as one, zipfile.ZipFile(wheel_of(packages)) as other:
        assert {(i.filename, i.CRC) for i in one.infolist()} == {
            (i.filename, i.CRC) for i in other.infolist()
        }


def installed(python: str, wheel: Path, folder: Path, *options: str) -> Path:
    """An empty environment with `geminga[server]`; returns its folder of programs."""
    uv = [sys.executable, "-m", "uv"]
    environment = os.environ | {"UV_PYTHON_DOWNLOADS": "never"}
    environment.pop("PYTHONPATH", None)
    subprocess.run(
        [*uv, "venv", "--quiet", "--python", python, str(folder)], check=True, env=environment
    )
    command = [*uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python")]
    done = subprocess.run(
        [*command, *options, f"{wheel}[server]"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return folder / "bin"


@contextmanager
def serving(programs: Path, folder: Path) -> Iterator[int]:
    """`geminga standalone` of an environment, in an empty folder; gives its port."""
    folder.mkdir()
    port, log = free_port(), folder / "log"
    command = [str(programs / "geminga"), "standalone", f"--broker-port={port}", "--web-port=0"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with log.open("w") as out:
        process = subprocess.Popen(
            guarded(command), cwd=folder, stdout=out, stderr=out, env=environment
        )
        try:
            wait_until(lambda: bool(READY.search(log.read_text())), process, log, timeout_s=60)
            yield port
        finally:
            process.terminate()
            assert process.wait(60) == 0, log.read_text()


def round_trip(programs: Path, folder: Path) -> None:
    """What the README's tour does first: a message goes in and comes out."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with serving(programs, folder) as port:
        client = [str(programs / "geminga"), "client", f"--url=pulsar://127.0.0.1:{port}"]
        consume = [*client, "consume", "-s", "s", "-p", "earliest", "-n", "1", "t"]
        for command in ([*client, "produce", "-m", "hello", "t"], consume):
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False, env=environment
            )
            assert done.returncode == 0, done.stderr
        assert "hello" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_serves(
    version: str, packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with skipped_without(f"Python {version}"):
        python = python_of(version)
    if python.libraries:
        monkeypatch.setenv("LD_LIBRARY_PATH", python.libraries)
    programs = installed(python.program, wheel_of(packages), tmp_path / "env")
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    shown = subprocess.run([programs / "python", "-c", code], capture_output=True, text=True)
    assert shown.stdout.strip() == version
    round_trip(programs, tmp_path / "work")


@pytest.mark.slow
def test_users_tests_get_a_broker_soon(packages: Path, tmp_path: Path) -> None:
    """Of the packages pytest rewrites nothing but the plug-in itself, which it loads first."""
    programs = installed(sys.executable, wheel_of(packages), tmp_path / "env", "pytest")
    (tmp_path / "test_mine.py").write_text(
        "def test(geminga_broker):\n    assert geminga_broker.startswith('pulsar://')\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [str(programs / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    rewritten = {path.parent.parent.name for path in tmp_path.rglob("env/**/*pytest-*.pyc")}
    assert rewritten & NAMES <= {"geminga"}, rewritten


def test_versions_are_those_of_the_package() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    classified = [each.rpartition(" :: ")[2] for each in named["classifiers"]]
    assert [each for each in classified if re.fullmatch(r"3\.\d+", each)] == list(VERSIONS)
    assert named["requires-python"] == f">={VERSIONS[0]}"


@pytest.mark.slow
def test_the_oldest_libraries_that_are_named_serve(packages: Path, tmp_path: Path) -> None:
    """The lower ends of the ranges in pyproject.toml are true."""
    options = ("--resolution", "lowest-direct")
    programs = installed(sys.executable, wheel_of(packages), tmp_path / "env", *options)
    round_trip(programs, tmp_path / "work")
