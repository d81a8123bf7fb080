"""docs/POLICIES.md is what the table says, and the table's keys are those of the broker."""

from __future__ import annotations

from compat_tests.policies.page import PAGE, page
from compat_tests.policies.table import POLICIES
from geminga_broker.config import load_config


def test_the_page_is_current() -> None:
    """If it isn't: `python -m compat_tests.policies.page`."""
    assert PAGE.read_text() == page()


def test_the_keys_are_the_broker_s() -> None:
    known = load_config(None, {}, {}).values()
    assert {key for each in POLICIES for key in each.keys} <= set(known)
