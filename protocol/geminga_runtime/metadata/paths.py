"""Paths of metadata nodes."""

from __future__ import annotations


def check_path(path: str) -> str:
    """Returns `path`. Raises ValueError if it is not absolute, or has empty parts."""
    if (path[:1] != "/" or path[-1:] == "/" or "//" in path) and path != "/":
        raise ValueError(f"not a metadata path: {path!r}")
    return path


def split_path(path: str) -> tuple[str, str]:
    """Parent and name: "/a/b" is ("/a", "b"), "/a" is ("/", "a"), the root is ("", "")."""
    if path == "/":
        return "", ""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def parent_path(path: str) -> str:
    """The parent of a path other than the root."""
    return path[: path.rindex("/")] or "/"
