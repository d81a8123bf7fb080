"""Clients: one for each process and settings, new ones after a fork."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

import geminga
from pyspark_pulsar import _clients
from pyspark_pulsar._clients import CLIENTS_MAX, client_for, close_clients
from pyspark_pulsar._options._client import ClientSettings
from pyspark_pulsar.errors import InvalidOption

SETTINGS = ClientSettings("pulsar://127.0.0.1:1")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_clients()


def test_one_for_all_with_the_same_settings() -> None:
    assert client_for(SETTINGS) is client_for(replace(SETTINGS))
    assert client_for(SETTINGS) is not client_for(replace(SETTINGS, listener_name="x"))


def test_unused_clients_are_closed() -> None:
    first = client_for(SETTINGS)
    for number in range(CLIENTS_MAX):
        client_for(replace(SETTINGS, listener_name=f"l{number}"))
    with pytest.raises(geminga.AlreadyClosedError):
        first.list_partitions("t")
    assert client_for(SETTINGS) is not first
    assert len(_clients._clients) == CLIENTS_MAX


def test_a_new_one_after_closing() -> None:
    first = client_for(SETTINGS)
    close_clients()
    with pytest.raises(geminga.AlreadyClosedError):
        first.list_partitions("t")
    assert client_for(SETTINGS) is not first


def test_bad_settings_name_their_option() -> None:
    with pytest.raises(InvalidOption) as caught:
        client_for(ClientSettings("pulsar://host:99999999"))
    assert caught.value.option == "service.url"


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_no_client_survives_a_fork() -> None:
    mine = client_for(SETTINGS)
    child = os.fork()
    if child == 0:
        # Nothing of pytest may run here.
        code = 1
        try:
            theirs = client_for(SETTINGS)
            code = 0 if theirs is not mine and theirs is client_for(SETTINGS) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client_for(SETTINGS) is mine
