"""Kills while the SQLite store copies its log to the file, and writes the sums of its pages."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from geminga_protocol._tests.rounds import rounds
from geminga_runtime.metadata._tests.store_files import files_of, put_back
from geminga_runtime.metadata.integrity import checkpoints
from geminga_runtime.metadata.integrity.check import check_file
from geminga_runtime.metadata.integrity.page_sums import PageSums, write_sums
from geminga_runtime.metadata.sqlite import SqliteMetadataStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


@pytest.mark.slow
async def test_a_kill_between_the_steps(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the copying of the log, before and behind the writing of the sums."""
    images: list[tuple[dict[str, bytes], int]] = []
    done = 0

    def write(path: Path, sums: PageSums) -> None:
        images.append((files_of(file), done))
        write_sums(path, sums)
        images.append((files_of(file), done))

    monkeypatch.setattr(checkpoints, "write_sums", write)
    monkeypatch.setattr(checkpoints, "LOG_PAGES", 20)
    store = await SqliteMetadataStore.open(file)
    for number in range(150):
        await store.put(f"/n/{number % 40:04}", b"%d" % number * 400)
        done = number
    await store.aclose()
    monkeypatch.setattr(checkpoints, "write_sums", write_sums)
    assert len(images) > 20
    for image, last in images:
        put_back(file, image)
        assert check_file(file).damage == ""
        store = await SqliteMetadataStore.open(file)
        node = await store.get(f"/n/{last % 40:04}")
        assert node is not None
        assert node.value == b"%d" % last * 400
        await store.aclose()
        assert check_file(file).is_proven


CHILD = """
import sys, trio
from geminga_runtime.metadata.integrity import checkpoints
from geminga_runtime.metadata.sqlite import SqliteMetadataStore

checkpoints.LOG_PAGES = 5

async def main():
    store = await SqliteMetadataStore.open(sys.argv[1])
    for number in range(100_000):
        await store.put(f"/n/{number % 300:04}", b"%d" % number * 100)
        sys.stdout.write("x")
        sys.stdout.flush()

trio.run(main)
"""


@pytest.mark.slow
def test_kills(file: Path) -> None:
    """At any time: no false alarm."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    proven = 0
    for seed in range(rounds(20)):
        command = [sys.executable, "-c", CHILD, str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
            assert child.stdout is not None
            child.stdout.read(random.Random(seed).randrange(1, 300))
            child.kill()
        found = check_file(file)
        assert found.damage == "", seed
        proven += found.is_proven
    assert proven
