"""A simple metadata store, to compare the real ones with."""

from __future__ import annotations

from geminga_runtime.metadata.api import BadVersion, NoNode, NotEmpty


class Oracle:
    """One dict of values and versions."""

    def __init__(self, root: str) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {root: (b"", 0)}
        self.made = 0

    def do(self, kind: str, path: str, version: int | None, value: bytes) -> object:
        found = self.nodes.get(path)
        if kind == "get":
            return found
        if kind == "children":
            below = [p for p in self.nodes if p.startswith(path + "/")]
            names = {p[len(path) + 1 :].split("/")[0] for p in below}
            return sorted(name for name in names if not name[-10:].isdigit())
        if kind == "sequential":
            self.made += 1
            self.insert(f"{path}-unique-{self.made:010d}", value)
            return len(path) + 10
        if kind == "delete" and found is None:
            return NoNode
        if version is not None and version != (-1 if found is None else found[1]):
            return BadVersion
        if kind == "delete":
            if any(p.startswith(path + "/") for p in self.nodes):
                return NotEmpty
            del self.nodes[path]
            return None
        self.insert(path, value)
        return self.nodes[path][1]

    def insert(self, path: str, value: bytes) -> None:
        found = self.nodes.get(path)
        self.nodes[path] = (value, 0 if found is None else found[1] + 1)
        parts = path.split("/")
        for length in range(2, len(parts)):
            self.nodes.setdefault("/".join(parts[:length]), (b"", 0))
