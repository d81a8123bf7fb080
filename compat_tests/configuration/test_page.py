"""docs/CONFIGURATION.md, the list that servers look up, and the records behind them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from compat_tests.configuration import state
from compat_tests.configuration.page import FILES, PACKAGED, PAGE, meanings, page
from compat_tests.configuration.record import LIST, keys_of_apache
from compat_tests.missing import APACHE, skipped_without
from geminga_bookie.autorecovery.config import AutoRecoveryConfig
from geminga_bookie.process.config import BookieConfig
from geminga_broker.config import ClusterBrokerConfig
from geminga_proxy.config import ProxyConfig


def test_the_page_is_current() -> None:
    """If it isn't: `python -m compat_tests.configuration.page`."""
    assert PAGE.read_text() == page()


def test_the_packaged_list_is_current() -> None:
    """If it isn't: `python -m compat_tests.configuration.page`."""
    assert PACKAGED.read_text() == state.packaged()


@pytest.mark.slow
@pytest.mark.java
def test_the_record_is_apache_s() -> None:
    """If it isn't: `python -m compat_tests.configuration.record`."""
    with skipped_without(APACHE):
        assert keys_of_apache() == LIST.read_text()


@pytest.mark.parametrize("file", FILES)
def test_each_key_of_apache_s_is_in_one_place(file: str) -> None:
    theirs, stated = state.apache(file).keys(), state.stated(file)
    read, older = state.READ[file].keys(), state.OLDER[file].keys()
    assert len(theirs) > 20
    assert theirs - read - older - stated.keys() == set()
    assert (read & older, read & stated.keys(), older & stated.keys()) == (set(),) * 3


@pytest.mark.parametrize(
    "kind", [ClusterBrokerConfig, BookieConfig, AutoRecoveryConfig, ProxyConfig]
)
def test_each_key_is_one_setting(kind: type[Any]) -> None:
    """Of two, a change of a running broker would reach one."""
    groups: list[Any] = [part.default_factory for part in fields(kind)]
    keys = [one.metadata["key"] for group in groups for one in fields(group)]
    assert sorted(set(keys)) == sorted(keys)


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_stated_of_other_keys(file: str) -> None:
    theirs = state.apache(file)
    others = {key for key, one in state.stated(file).items() if one.default is None} - theirs.keys()
    assert not others
    assert state.stock(file).keys() <= theirs.keys() | state.stated(file).keys()


def test_each_sentence_is_of_a_key() -> None:
    for file, told in meanings().items():
        known = state.READ[file].keys() | state.OLDER[file].keys()
        assert told.keys() <= known
