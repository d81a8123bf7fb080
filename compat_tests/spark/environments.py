"""Environments that have this one's packages, but some of them not, or in another version."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path


def linked_environment(folder: Path, *, without: tuple[str, ...]) -> Path:
    """An environment in the folder with links to the packages that this one has now, those left out
    whose names begin so; its interpreter. What it has of its own stays.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    for each in site.iterdir():
        if each.is_symlink():
            each.unlink()
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if not each.name.startswith(without) and not (site / each.name).exists():
            (site / each.name).symlink_to(each)
    return python
