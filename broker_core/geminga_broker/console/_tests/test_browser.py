"""The proof that a form is the console's own, and cookies."""

from __future__ import annotations

import pytest

from geminga_broker.console.browser import (
    HEADERS,
    basic,
    cookie,
    new_form_token,
    refusal,
    refused_unread,
)

TOKEN = "0123456789abcdef" * 2
HOST = {"host": "b:8080"}
OWN = {**HOST, "origin": "http://b:8080"}


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        (OWN, True),
        ({**OWN, "sec-fetch-site": "same-origin"}, True),
        # A proxy hides the host, but the browser says where the page is from.
        ({**HOST, "origin": "https://proxy", "sec-fetch-site": "same-origin"}, True),
        ({**HOST, "origin": "https://proxy", "x-forwarded-host": "proxy"}, True),
        ({**OWN, "sec-fetch-site": "cross-site"}, False),
        ({**OWN, "sec-fetch-site": "same-site"}, False),
        ({**OWN, "sec-fetch-site": "none"}, False),
        ({**HOST, "origin": "http://evil"}, False),
        ({**HOST, "origin": "http://b:9090"}, False),
        ({**HOST, "origin": "null"}, False),
        ({**HOST, "origin": ""}, False),
        ({**HOST, "origin": "http://["}, False),
        ({**HOST, "origin": "http://b\u2100"}, False),
        (HOST, False),
        ({"origin": "null"}, False),
        ({"host": "", "origin": ""}, False),
    ],
)
def test_where_a_form_comes_from(headers: dict[str, str], is_own: bool) -> None:
    assert (refusal(headers, TOKEN, TOKEN) is None) is is_own


@pytest.mark.parametrize(
    ("in_cookie", "in_form"), [("", ""), (TOKEN, ""), ("", TOKEN), (TOKEN, TOKEN[:-1] + "é")]
)
def test_a_form_needs_the_token_of_its_cookie(in_cookie: str, in_form: str) -> None:
    assert refusal(OWN, in_cookie, in_form) is not None


def test_a_form_is_not_read_without_a_cookie() -> None:
    assert refused_unread(OWN, "") is not None
    assert refused_unread({**OWN, "origin": "http://evil"}, TOKEN) is not None
    assert refused_unread(OWN, TOKEN) is None


def test_cookies_are_seen_by_the_console_only() -> None:
    made = cookie("n", "v", secure=True)
    assert made == "n=v; Path=/console; HttpOnly; SameSite=Strict; Secure"
    assert cookie("n", "", secure=False).endswith("SameSite=Strict; Max-Age=0")


def test_no_page_may_load_anything_from_elsewhere() -> None:
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    sources = {part.split()[1] for part in policy.split("; ")}
    assert sources == {"'self'", "'none'"}


def test_a_password_as_a_header() -> None:
    assert basic("user", "päss") == "Basic dXNlcjpww6Rzcw=="


def test_form_tokens_are_drawn() -> None:
    drawn = {new_form_token() for _ in range(10)}
    assert len(drawn) == 10
    assert {len(each) for each in drawn} == {len(TOKEN)}
