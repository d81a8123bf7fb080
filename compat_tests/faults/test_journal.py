"""The journal's tail torn off or overwritten, on a whole server.

Every byte of the last three records is tried in the storage's own tests; here a sample of places
shows that the server starts, keeps what came before, and says what it dropped.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from compat_tests.faults.conftest import TOPIC
from compat_tests.processes import start_geminga
from compat_tests.wire.raw import RawClient, read_all
from geminga_protocol._tests.rounds import rounds

_MESSAGES = 12
_SAMPLES = rounds(6)
_PAGE_BYTES = 4096
_HEADER_BYTES = 64


@dataclass(frozen=True)
class Written:
    """A data directory left by a kill, and where each message ended in the journal."""

    folder: Path
    journal: Path
    ends: list[int]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Messages published one by one, so that each has a journal record of its own."""
    folder = tmp_path_factory.mktemp("torn") / "data"
    server = start_geminga(folder)
    ends = []
    try:
        with RawClient(server.address) as client:
            client.producer(TOPIC)
            client.subscribe(TOPIC, "holder")  # what no subscription needs may be trimmed
            for n in range(_MESSAGES):
                client.publish(n, b"message %d " % n + b"." * 200)
                journal = last_journal(folder)
                ends.append(used_bytes(journal))
    finally:
        server.kill()
    assert ends == sorted(set(ends)), "each message must have grown the journal"
    return Written(folder, last_journal(folder).relative_to(folder), ends)


def last_journal(folder: Path) -> Path:
    """The journal file that was written; the others are room made beforehand."""
    files = list(folder.rglob("*.journal"))
    assert files, f"no journal under {folder}: {sorted(folder.rglob('*'))}"
    return max(files, key=used_bytes)


def used_bytes(path: Path) -> int:
    """The length without the zeroes that a journal file is filled with beforehand."""
    return len(path.read_bytes().rstrip(b"\0"))


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "noise"])
def test_earlier_messages_survive_a_damaged_tail(
    written: Written, damage: str, tmp_path: Path
) -> None:
    chance = random.Random(damage)
    for sample in range(_SAMPLES):
        at = chance.randrange(written.ends[-4], written.ends[-1])
        folder = tmp_path / f"{damage}-{sample}"
        shutil.copytree(written.folder, folder)
        journal = folder / written.journal
        data = journal.read_bytes()
        noise = chance.randbytes(written.ends[-1] - at) if damage == "noise" else b""
        rest = data[written.ends[-1] :] if damage == "noise" else b""
        journal.write_bytes(data[:at] + noise + rest)
        kept = sum(end <= at for end in written.ends)
        # Cut between two records, the file looks as if the later ones had never been written.
        start_of_next = -(-written.ends[kept - 1] // _PAGE_BYTES) * _PAGE_BYTES
        told = damage == "noise" or at > start_of_next + _HEADER_BYTES
        _check(folder, kept_min=kept, told=told, at=at)


@pytest.mark.slow
def test_noise_in_the_last_record_is_told_as_a_loss(written: Written, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(written.folder, folder)
    journal = folder / written.journal
    data = bytearray(journal.read_bytes())
    start = data.index(b"message %d " % (_MESSAGES - 1)) // _PAGE_BYTES * _PAGE_BYTES
    data[start : start + 16384] = random.Random(1).randbytes(16384)
    journal.write_bytes(data)
    log = _check(folder, kept_min=_MESSAGES - 1, told=True, at=start)
    assert "acknowledged entries may be lost" in log
    assert "unfinished" not in log


@pytest.mark.slow
def test_a_changed_byte_costs_one_message(written: Written, tmp_path: Path) -> None:
    """In the midst of the newest journal: all that is in other records is read."""
    for lost in (1, _MESSAGES // 2, _MESSAGES - 2):
        folder = tmp_path / str(lost)
        shutil.copytree(written.folder, folder)
        journal = folder / written.journal
        data = bytearray(journal.read_bytes())
        data[data.index(b"message %d " % lost)] ^= 1
        journal.write_bytes(data)
        server = start_geminga(folder, settings={"autoSkipNonRecoverableData": "true"})
        try:
            bodies = [body for _, body in read_all(server.address, TOPIC)]
            assert "acknowledged entries may be lost" in server.log_path.read_text()
        finally:
            server.kill()
        kept = [n for n in range(_MESSAGES) if n != lost]
        assert bodies == [b"message %d " % n + b"." * 200 for n in kept]


def _check(folder: Path, *, kept_min: int, told: bool, at: int) -> str:
    server = start_geminga(folder)
    try:
        bodies = [body for _, body in read_all(server.address, TOPIC)]
        expected = [b"message %d " % n + b"." * 200 for n in range(len(bodies))]
        assert bodies == expected, f"damage at byte {at}"
        assert len(bodies) >= kept_min, f"damage at byte {at}"
        if len(bodies) < _MESSAGES and told:
            log = server.log_path.read_text().lower()
            assert "journal" in log, f"it does not say what it dropped (damage at {at}):\n{log}"
        with RawClient(server.address) as client:
            client.producer(TOPIC)
            client.publish(1000, b"and goes on")
        assert read_all(server.address, TOPIC)[-1][1] == b"and goes on"
        return server.log_path.read_text()
    finally:
        server.kill()
