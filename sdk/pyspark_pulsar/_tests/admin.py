"""The broker's admin REST API, as tests use it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any


def ask(web_url: str, method: str, path: str, body: object = None) -> Any:
    """A request below `/admin/v2/`; its JSON answer, or None. Raises HTTPError."""
    request = urllib.request.Request(
        f"{web_url}/admin/v2/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def path_of(topic: str) -> str:
    """A full name in paths of the API."""
    return topic.replace("://", "/")
