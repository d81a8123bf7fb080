"""The connector's allowed imports, and the cost of importing it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark_pulsar

HERE = Path(pyspark_pulsar.__file__).parent
ROOTS = {
    "fastavro", "geminga", "google", "msgspec", "numpy", "pyarrow", "pyspark", "pyspark_pulsar",
    "trio", "click", "py4j", "rich",
}  # fmt: skip


def imports(path: Path) -> Iterator[str]:
    """Full names of a file's imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{each.name}" for each in node.names)


def test_only_public_names_of_the_sdk() -> None:
    files = [path for path in HERE.rglob("*.py") if "_tests" not in path.parts]
    assert len(files) > 20
    for path in files:
        for name in imports(path):
            root, *rest = name.split(".")
            assert root in ROOTS | set(sys.stdlib_module_names), f"{path}: {name}"
            if root == "geminga":
                assert not any(part.startswith("_") for part in rest), f"{path}: {name}"


def test_import_is_light() -> None:
    """Spark imports the package in its workers whatever a query reads."""
    told = (
        "import sys, pyspark_pulsar\n"
        "heavy = {'geminga', 'pyspark', 'pyarrow', 'fastavro'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert pyspark_pulsar.DefaultSource.name() == 'pulsar'\n"
        "assert 'pyarrow' not in sys.modules and 'geminga' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", told], check=True)


def test_names_of_the_package() -> None:
    for name in pyspark_pulsar.__all__:
        assert getattr(pyspark_pulsar, name).__doc__, name
    assert not hasattr(pyspark_pulsar, "no_such_name")
