"""What brokers write about themselves: owners of bundles, and the leader (spec CL-04, CL-06).

Paths and fields are Apache's (`NamespaceEphemeralData`, `LeaderBroker`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.ownership.bundle import BundleId
from geminga_runtime.json_text import BadJson, read_json

OWNERS_PATH = "/namespace"
LEADER_PATH = "/loadbalance/leader"

T = TypeVar("T")


class ListenerRecord(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """The addresses of one advertised listener; absent without such a port."""

    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None
    broker_http_url: str | None = None
    broker_https_url: str | None = None

    @property
    def addresses(self) -> Addresses:
        """The addresses for lookups."""
        return Addresses(
            self.broker_service_url or "",
            self.broker_http_url or "",
            self.broker_service_url_tls or "",
            self.broker_https_url or "",
        )


class OwnerRecord(msgspec.Struct, rename="camel", frozen=True):
    """Who serves a bundle. `disabled` while it is being unloaded."""

    native_url: str | None = None
    native_url_tls: str | None = None
    http_url: str | None = None
    http_url_tls: str | None = None
    disabled: bool = False
    advertised_listeners: dict[str, ListenerRecord] = {}

    @property
    def addresses(self) -> Addresses:
        """The addresses for lookups."""
        return Addresses(
            self.native_url or "",
            self.http_url or "",
            self.native_url_tls or "",
            self.http_url_tls or "",
        )


class LeaderRecord(msgspec.Struct, rename="camel", frozen=True):
    """The leader; `service_url` is its web service's."""

    broker_id: str
    service_url: str


def owner_path(bundle: BundleId) -> str:
    """Where a bundle's owner stands."""
    return f"{OWNERS_PATH}/{bundle}"


def listener_records(listeners: Mapping[str, Addresses]) -> dict[str, ListenerRecord]:
    """Named listeners as they are written."""
    return {
        name: ListenerRecord(
            urls.broker_url or None,
            urls.broker_url_tls or None,
            urls.web_url or None,
            urls.web_url_tls or None,
        )
        for name, urls in listeners.items()
    }


def owner_record(
    addresses: Addresses, listeners: Mapping[str, Addresses], *, disabled: bool = False
) -> OwnerRecord:
    """This broker as an owner."""
    return OwnerRecord(
        addresses.broker_url or None,
        addresses.broker_url_tls or None,
        addresses.web_url or None,
        addresses.web_url_tls or None,
        disabled,
        listener_records(listeners),
    )


def encode(record: msgspec.Struct) -> bytes:
    """As Apache's mapper writes it: without absent values."""
    found = msgspec.to_builtins(record)
    return msgspec.json.encode({name: value for name, value in found.items() if value is not None})


def decode(value: bytes, kind: type[T]) -> T | None:
    """The record; None if it isn't one."""
    try:
        return read_json(value, kind)
    except BadJson:
        return None
