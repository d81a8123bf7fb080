"""Statements are cut at the semicolons that end them, and at no others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_pulsar.cli._run import split_statements

PIECES = st.sampled_from(
    ["select", " ", "\n", "1-2", "a/b", "'x;y'", "'it''s;'", r"'\';'", '"p;q"', "`r;``s`",
     "-- c;d'\n", "/* e;f` */", "é", "*", "--\n"]
)  # fmt: skip
STATEMENTS = st.lists(PIECES, max_size=8).map("".join)


def is_empty(statement: str) -> bool:
    """Nothing but space and comments."""
    left = statement.replace("-- c;d'\n", "").replace("/* e;f` */", "").replace("--\n", "")
    return not left.strip()


@settings(deadline=None)
@given(st.lists(STATEMENTS, max_size=5), STATEMENTS)
def test_what_was_joined_is_cut_again(ended: list[str], rest: str) -> None:
    found, left = split_statements("".join(f"{each};" for each in ended) + rest)
    assert found == [each.strip() for each in ended if not is_empty(each)]
    assert left == ("" if is_empty(rest) else rest.strip())


@pytest.mark.parametrize(
    "opened", ["select 'a;", 'select "a;', "select `a;", "select /* a;", "/*;"]
)
def test_what_is_not_closed_ends_nothing(opened: str) -> None:
    assert split_statements(f"one; {opened}") == (["one"], opened)


def test_an_open_text_goes_on_in_the_next_line() -> None:
    assert split_statements("select 'a;\nb'; select 2") == (["select 'a;\nb'"], "select 2")


@settings(deadline=None)
@given(st.text(alphabet="'\"`;-/* \na\\", max_size=30))
def test_nothing_is_lost_or_takes_long(text: str) -> None:
    ended, rest = split_statements(text)
    assert all(each in text for each in [*ended, rest])
