"""The files of a SQLite store, for tests that change them."""

from __future__ import annotations

from pathlib import Path

from geminga_runtime.metadata.sqlite import SqliteMetadataStore

ENDS = ("", "-wal", "-shm", ".sums")
PAGE_BYTES = 4096
Nodes = dict[str, bytes]


def files_of(file: Path) -> dict[str, bytes]:
    """What is there, by the ends of the names."""
    parts = {end: Path(f"{file}{end}") for end in ENDS}
    return {end: part.read_bytes() for end, part in parts.items() if part.is_file()}


def put_back(file: Path, files: dict[str, bytes]) -> None:
    """These, and nothing else."""
    for part in file.parent.glob(f"{file.name}*"):
        part.unlink()
    for end, data in files.items():
        replace(file, end, data)


def content(file: Path, end: str = "") -> bytes:
    """Of one of them."""
    return Path(f"{file}{end}").read_bytes()


def replace(file: Path, end: str, data: bytes | None) -> None:
    """One of them; None removes it."""
    part = Path(f"{file}{end}")
    part.unlink(missing_ok=True)
    if data is not None:
        part.write_bytes(data)


def flip(data: bytes, at: int) -> bytes:
    """With one bit changed."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


async def filled(file: Path, count: int = 300) -> Nodes:
    """A store that was closed in order, with so many nodes of 200 bytes beneath `/n`."""
    nodes = {f"/n/{number:04}": b"%04d" % number * 50 for number in range(count)}
    store = await SqliteMetadataStore.open(file)
    for path, value in nodes.items():
        await store.put(path, value)
    await store.aclose()
    return nodes


async def read(store: SqliteMetadataStore) -> Nodes:
    """All nodes of the second level."""
    found: Nodes = {}
    for parent in await store.children("/"):
        for name in await store.children(f"/{parent}"):
            node = await store.get(f"/{parent}/{name}")
            assert node is not None
            found[f"/{parent}/{name}"] = node.value
    return found
