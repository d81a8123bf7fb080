"""Interpreters of the versions that we serve: those of this machine, and for versions that it lacks
the ones that Maven Central has (`org.bytedeco:cpython`).
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

from compat_tests.apache.jars import PeerMissing, peers_dir
from compat_tests.apache.locks import locked

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
_PUBLISHED = {  # that of 3.11 lacks TLS
    "3.12": "3.12.1-1.5.10",
    "3.13": "3.13.5-1.5.12",
    "3.14": "3.14.3-1.5.13",
}
_GROUP = "org.bytedeco"


class Python(NamedTuple):
    """One interpreter."""

    program: str
    libraries: str = ""
    """For `LD_LIBRARY_PATH`, where it doesn't find its own."""


def python_of(version: str) -> Python:
    """The one of this version: this process's own, one by its usual name, one of pyenv's, or one
    from Maven. Raises PeerMissing.
    """
    if version == f"3.{sys.version_info.minor}":
        return Python(sys.executable)
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    path = str(kept[-1]) if kept else shutil.which(f"python{version}")
    if path and _is_whole(Python(path), version):
        return Python(path)
    return _from_maven(version)


def _is_whole(python: Python, version: str) -> bool:
    """Shims of pyenv answer for versions that are not chosen."""
    code = "import ctypes, ssl, sqlite3, sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run(
        [python.program, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"LD_LIBRARY_PATH": python.libraries},
    )
    return done.stdout.strip() == version


def _from_maven(version: str) -> Python:
    release = _PUBLISHED.get(version)
    if release is None:
        raise PeerMissing(f"python{version} is not installed, and Maven has no whole one")
    home = peers_dir() / f"cpython-{release}"
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / ".lock"):
        root = home / "root" / "org" / "bytedeco" / "cpython" / "linux-x86_64"
        found = Python(str(root / "bin" / f"python{version}"), str(root))
        if not root.exists():
            _unpack(_fetched(home, release), home / "root")
            Path(found.program).chmod(0o755)
    if not _is_whole(found, version):
        raise PeerMissing(f"Python {release} from Maven does not run on this machine")
    return found


def _fetched(home: Path, release: str) -> Path:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise PeerMissing("Maven has Python for Linux on x86-64 only")
    if shutil.which("mvn") is None:
        raise PeerMissing("mvn is not installed")
    target = f"{_GROUP}:cpython:{release}:jar:linux-x86_64"
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={target}"]
    command += [f"-DoutputDirectory={home}"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    jars = list(home.glob("*.jar"))
    if done.returncode or not jars:
        last = (done.stdout.strip().splitlines() or [done.stderr.strip()])[0]
        raise PeerMissing(f"Maven could not fetch Python {release}: {last}")
    return jars[0]


def _unpack(jar: Path, folder: Path) -> None:
    """Whole or not at all."""
    fresh = folder.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(fresh)
    fresh.rename(folder)
    jar.unlink()
