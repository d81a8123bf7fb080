"""Searching and paging."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.console.cluster_pages import is_empty, set_policies, topic_rows
from geminga_broker.console.listing import page_number, page_of


@given(st.lists(st.text(max_size=4), max_size=40), st.integers(1, 7))
def test_all_pages_together_are_the_list(items: list[str], rows: int) -> None:
    pages = page_of(items, "", 1, rows).pages
    turned = [page_of(items, "", number, rows) for number in range(1, pages + 1)]
    assert [item for page in turned for item in page.items] == items
    assert page_of(items, "", pages + 9, rows) == turned[-1]


def test_a_search_takes_no_notice_of_case() -> None:
    page = page_of(["Orders", "clicks", "re-ORDER"], " order ", 1)
    assert list(page.items) == ["Orders", "re-ORDER"]
    assert (page.found, page.total) == (2, 3)


@pytest.mark.parametrize(
    ("text", "number"),
    [("3", 3), (None, 1), ("", 1), ("-2", 1), ("x", 1), ("9" * 5000, 1), ("²", 1), ("0", 0)],
)
def test_the_number_of_a_page(text: str | None, number: int) -> None:
    assert page_number(text) == number
    assert page_of(["a"], "", page_number(text)).number == 1


def test_partitions_are_one_row() -> None:
    names = ["p-partition-0", "p-partition-1", "a", "b-partition-x", "c-partition-0"]
    assert topic_rows(names, ["p", "empty"]) == {
        "a": 0, "b-partition-x": 0, "c-partition-0": 0, "empty": 1, "p": 2,
    }  # fmt: skip


def test_policies_that_are_set() -> None:
    given = {
        "bundles": {"numBundles": 4}, "deleted": False, "auth": {"a": {}, "b": []},
        "deduplicationEnabled": False, "message_ttl_in_seconds": 0, "is_allow_auto_update_schema":
        False, "offload_threshold": -1, "retention": {"sizeInMB": 0}, "none": None,
    }  # fmt: skip
    assert set(set_policies(given)) == {
        "deduplicationEnabled", "message_ttl_in_seconds", "is_allow_auto_update_schema",
        "retention",
    }  # fmt: skip
    assert is_empty({"a": {"b": [], "c": None, "d": ""}})
    assert not is_empty({"a": 0})
