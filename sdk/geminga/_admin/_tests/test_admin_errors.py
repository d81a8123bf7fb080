from __future__ import annotations

import re

import pytest

from geminga._admin import errors
from geminga._admin.errors import AdminError, of_answer
from geminga.errors import ConnectionFailedError, GemingaError, OperationTimeoutError


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, errors.BadRequestError, False),
        (401, errors.NotAuthorizedError, False),
        (403, errors.NotAuthorizedError, False),
        (404, errors.NotFoundError, False),
        (405, errors.NotAllowedError, False),
        (406, errors.BadRequestError, False),
        (409, errors.ConflictError, False),
        (412, errors.PreconditionFailedError, False),
        (418, errors.AdminError, False),
        (422, errors.BadRequestError, False),
        (429, errors.UnavailableError, True),
        (500, errors.ServerError, False),
        (501, errors.ServerError, False),
        (503, errors.UnavailableError, True),
        (599, errors.ServerError, False),
    ],
)
def test_errors_by_status(status: int, kind: type[AdminError], retryable: bool) -> None:
    error = of_answer(status, b'{"reason":"so"}', "GET http://a/b")
    assert type(error) is kind
    assert (error.status, error.reason, error.code) == (status, "so", f"Http{status}")
    assert error.retryable is retryable
    assert str(error) == f"GET http://a/b: HTTP status {status}: so"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", ""),
        (b"<html><body>Bad Gateway</body></html>", ""),
        (b"Not Found", "Not Found"),
        (b"two\r\n lines", "two lines"),
        (b'{"reason":null}', ""),
        (b'{"reason":3}', ""),
        (b'["reason"]', ""),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_reasons(body: bytes, reason: str) -> None:
    assert of_answer(500, body, "GET x").reason == reason


def test_a_long_reason_is_cut() -> None:
    error = of_answer(500, b'{"reason":"' + b"x" * 100_000 + b'"}', "GET x")
    assert len(error.reason) == errors.REASON_CHARS_MAX
    assert len(str(error)) < 400


def test_what_they_are_beside() -> None:
    assert issubclass(errors.UnreachableError, ConnectionFailedError)
    assert issubclass(errors.RequestTimeoutError, OperationTimeoutError)
    assert issubclass(errors.RequestTimeoutError, TimeoutError)
    assert issubclass(AdminError, GemingaError)


def test_the_documented_tree_is_the_real_one() -> None:
    told: list[tuple[int, str]] = [
        (len(match[1]) // 2, match[2])
        for match in re.finditer(r"^    ( *)(\w+Error)\b", errors.__doc__ or "", re.MULTILINE)
    ]
    path: list[type[BaseException]] = []
    for depth, name in told:
        kind = getattr(errors, name)
        del path[depth:]
        if path:
            assert kind.__mro__[1] is path[-1], name
        path.append(kind)
    listed = {name for name, value in vars(errors).items() if isinstance(value, type)
              and issubclass(value, AdminError)}  # fmt: skip
    assert listed == {name for _, name in told}


def test_a_broker_that_is_asked_for_a_proxy_s_page() -> None:
    what = "GET http://broker:8080/proxy-stats/connections"
    assert str(of_answer(404, b"", what)).endswith(
        "404 (only a proxy has this: is it a proxy's address?)"
    )
    assert str(of_answer(404, b"", "GET http://broker:8080/x")).endswith("404")
