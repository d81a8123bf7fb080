"""The cookie of the console's login: what comes out of it is what went in, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_runtime.auth.console_login import (
    COOKIE_BYTES_MAX,
    CREDENTIAL_COOKIE,
    TooLong,
    credential_in,
    from_cookie,
    is_console,
    is_open,
    to_cookie,
)

BEARER = "Bearer a.b.c"


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=500))
def test_a_credential_comes_back(credential: str) -> None:
    value = to_cookie(credential)
    assert value.replace("-", "").replace("_", "").isalnum()
    assert from_cookie(value) == credential
    assert credential_in(f"a=b; {CREDENTIAL_COOKIE}={value}; c=d") == credential


@given(st.text(max_size=200))
def test_what_is_no_cookie_of_ours_is_nothing(value: str) -> None:
    found = from_cookie(value)
    assert found is None or (found.isascii() and found.isprintable())


@pytest.mark.parametrize("text", ["Bearer a\r\nX-Original-Principal: root", "Bearer ä", ""])
def test_a_cookie_begins_no_other_header(text: str) -> None:
    assert from_cookie(to_cookie(text)) is None


def test_long_credentials_are_refused_both_ways() -> None:
    with pytest.raises(TooLong):
        to_cookie("x" * COOKIE_BYTES_MAX)
    assert from_cookie("A" * (COOKIE_BYTES_MAX + 4)) is None


def test_of_two_cookies_neither_is_taken() -> None:
    one, other = to_cookie(BEARER), to_cookie("Bearer other")
    assert credential_in(f"{CREDENTIAL_COOKIE}={one}") == BEARER
    assert credential_in(f"{CREDENTIAL_COOKIE}={one}; {CREDENTIAL_COOKIE}={other}") is None
    assert credential_in("") is None


def test_which_pages_are_the_consoles_and_which_are_open() -> None:
    ours = ("/", "/console", "/console/", "/console/tenants", "/console/login")
    assert all(is_console(path) for path in ours)
    assert not any(is_console(path) for path in ("", "/consoles", "/admin", "/admin/console"))
    assert is_open("GET", "/console/login")
    assert is_open("POST", "/console/login")
    assert is_open("GET", "/console/static/console.js")
    assert not is_open("POST", "/console/static/console.js")
    assert not is_open("DELETE", "/console/login")
    assert not any(is_open("GET", path) for path in ("/", "/console", "/console/login/x"))
