"""Commands run against answers that are given, and what they asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pytest
from click.testing import CliRunner, Result

from geminga._admin.errors import of_answer
from geminga._admin.requests import Request
from geminga.cli.admin import admin, calls
from geminga_runtime.http.answers import HttpAnswer


class Asked:
    """Answers of paths, and the requests that came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, object] = {}
        self.requests: list[str] = []
        self.places: list[calls.Place] = []

        def asker(place: calls.Place) -> object:
            self.places.append(place)
            return self._ask

        monkeypatch.setattr(calls, "asker", asker)

    def _ask(self, request: Request) -> HttpAnswer:
        line = f"{request.method} {unquote(request.target)}"
        body = "" if request.body is None else f" {request.body.decode()}"
        self.requests.append(line + body)
        answer = self.answers.get(line.partition("?")[0], self.answers.get(line))
        if isinstance(answer, HttpAnswer):
            if answer.status >= 400:
                raise of_answer(answer.status, answer.body, line)
            return answer
        body_bytes = b"" if answer is None else json.dumps(answer).encode()
        return HttpAnswer(200, {}, body_bytes)

    def run(self, *arguments: str, **options: Any) -> Result:
        """Run a command; the result of click's."""
        return CliRunner().invoke(admin, list(arguments), **options)


def refusal(status: int, reason: str) -> HttpAnswer:
    return HttpAnswer(status, {}, json.dumps({"reason": reason}).encode())


def answered(
    body: bytes, headers: Mapping[str, str] | None = None, status: int = 200
) -> HttpAnswer:
    listed = tuple((headers or {}).items())
    return HttpAnswer(status, {name.lower(): value for name, value in listed}, body, listed)
