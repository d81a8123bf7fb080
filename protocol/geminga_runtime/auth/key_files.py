"""Reading keys from `data:` and `file:` URLs, paths, Base64 (Apache's `readKeyFromUrl`)."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes, urlsplit

KEY_BYTES_MAX = 1 << 20
"""Larger files are refused."""


class KeySourceError(ValueError):
    """A key can't be read from its source. The text doesn't contain the key."""


def read_key(source: str) -> bytes:
    """The key's bytes. Raises KeySourceError."""
    source = source.strip()
    if source.startswith("data:"):
        return _from_data_url(source)
    if source.startswith("file:"):
        return _from_file(Path(unquote(urlsplit(source).path)))
    path = Path(source)
    try:
        is_file = path.exists()
    except OSError:
        is_file = False  # too long for a path: a key itself
    if is_file:
        return _from_file(path)
    try:
        return base64.b64decode(source, validate=True)
    except binascii.Error:
        raise KeySourceError("not a data: or file: URL, an existing file or Base64") from None


def _from_data_url(source: str) -> bytes:
    head, comma, body = source.removeprefix("data:").partition(",")
    if not comma:
        raise KeySourceError("the data: URL has no comma")
    if not head.endswith(";base64"):
        return unquote_to_bytes(body)
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error:
        raise KeySourceError("the data: URL is not Base64") from None


def _from_file(path: Path) -> bytes:
    try:
        if path.stat().st_size > KEY_BYTES_MAX:
            raise KeySourceError(f"{path} is larger than {KEY_BYTES_MAX} bytes")
        return path.read_bytes()
    except OSError as error:
        raise KeySourceError(f"{path} can't be read: {error.strerror}") from None
