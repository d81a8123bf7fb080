"""Statements are cut at the semicolons that end them, and at no others."""

from __future__ import annotations

import re
import time

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
def test_joined_statements_are_split_again(ended: list[str], rest: str) -> None:
    found, left = split_statements("".join(f"{each};" for each in ended) + rest)
    assert found == [each.strip() for each in ended if not is_empty(each)]
    assert left == ("" if is_empty(rest) else rest.strip())


@pytest.mark.parametrize(
    "opened", ["select 'a;", 'select "a;', "select `a;", "select /* a;", "/*;"]
)
def test_an_unclosed_text_ends_no_statement(opened: str) -> None:
    assert split_statements(f"one; {opened}") == (["one"], opened)


def test_an_open_text_goes_on_in_the_next_line() -> None:
    assert split_statements("select 'a;\nb'; select 2") == (["select 'a;\nb'"], "select 2")


OPENED = r"'(?:[^'\\]|\\.)*$|\"(?:[^\"\\]|\\.)*$|`[^`]*$|/\*(?:(?!\*/).)*$"
WHOLE = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/"
TOKEN = re.compile(f"({OPENED})|({WHOLE})|(.)", re.DOTALL)


def words(text: str) -> str:
    """All but comments, space, and the semicolons that end statements; by other means."""
    kept = []
    for opened, whole, other in TOKEN.findall(text):
        if opened or (whole and not whole.startswith(("--", "/*"))):
            kept.append(opened or whole)
        elif not other.isspace() and other != ";":
            kept.append(other)
    return "".join(kept)


@settings(deadline=None)
@given(st.text(alphabet="'\"`;-/* \na\\", max_size=30))
def test_nothing_is_lost_and_all_stays_in_order(text: str) -> None:
    ended, rest = split_statements(text)
    # The rest loses the space at its end, also that of a text that is not ended.
    assert "".join(map(words, [*ended, rest])) == words(text).rstrip()
    assert all(words(each) for each in ended), "a statement of nothing but comments"
    at = 0
    for each in [*ended, rest]:
        at = text.index(each, at) + len(each)


@pytest.mark.alone
@pytest.mark.parametrize("piece", ["'", '"', "`", "/*", "--", "\\", ";", "'a", "/*a*/"])
def test_long_texts_take_no_longer_for_each_character(piece: str) -> None:
    """The time is of the processor, and forty times the text may take a hundred times as long."""

    def cost_s(times: int) -> float:
        began_s = time.process_time()
        split_statements(piece * times)
        return time.process_time() - began_s

    cost_s(1000)
    assert cost_s(40_000) < max(0.5, 100 * cost_s(1000))
