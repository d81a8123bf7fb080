"""When and where to old ledgers would be offloaded (spec OP-03; Apache's `OffloadPoliciesImpl`).

There is no tiered storage: as at an Apache broker without its offloaders, policies are kept and
told, and ledgers stay in BookKeeper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

import msgspec
from msgspec import Struct, field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import jackson, rest
from geminga_broker.admin.namespaces.changing import change_policies, policies_of
from geminga_broker.cluster.records import JsonObject
from geminga_broker.service import BrokerService

FIELD = "offload_policies"
DRIVERS = ("S3", "aws-s3", "google-cloud-storage", "filesystem", "azureblob", "aliyun-oss")
NOT_BUILT = "Tiered storage is not implemented"
_OF_S3, _OF_GOOGLE, _OF_FILES = ("s3", "aws-s3"), ("google-cloud-storage",), ("filesystem",)
_IN_BYTES = "managedLedgerOffloadThresholdInBytes"
_IN_SECONDS = "managedLedgerOffloadThresholdInSeconds"
_LAG = "managedLedgerOffloadDeletionLagInMillis"
_OLDER: dict[str, tuple[str, object]] = {
    _LAG: ("offload_deletion_lag_ms", None),
    _IN_BYTES: ("offload_threshold", -1),
    _IN_SECONDS: ("offload_threshold_in_seconds", -1),
}
"""Members of the namespace's record that these replaced, and what is there without a value."""


class OffloadPolicies(Struct, rename="camel"):
    """Of a namespace or topic; the defaults are those of Apache's class."""

    offloaders_directory: str | None = "./offloaders"
    managed_ledger_offload_driver: str | None = None
    managed_ledger_offload_max_threads: int | None = 2
    managed_ledger_offload_prefetch_rounds: int | None = 1
    managed_ledger_offload_threshold_in_seconds: int | None = None
    managed_ledger_offload_threshold_in_bytes: int | None = None
    managed_ledger_offload_deletion_lag_in_millis: int | None = None
    managed_ledger_offloaded_read_priority: (
        Literal["BOOKKEEPER_FIRST", "TIERED_STORAGE_FIRST"] | None
    ) = None
    managed_ledger_extra_configurations: dict[str, str] | None = field(default_factory=dict)
    s3_managed_ledger_offload_region: str | None = None
    s3_managed_ledger_offload_bucket: str | None = None
    s3_managed_ledger_offload_service_endpoint: str | None = None
    s3_managed_ledger_offload_max_block_size_in_bytes: int | None = 64 << 20
    s3_managed_ledger_offload_read_buffer_size_in_bytes: int | None = 1 << 20
    s3_managed_ledger_offload_credential_id: str | None = None
    s3_managed_ledger_offload_credential_secret: str | None = None
    s3_managed_ledger_offload_role: str | None = None
    s3_managed_ledger_offload_role_session_name: str | None = "pulsar-s3-offload"
    gcs_managed_ledger_offload_region: str | None = None
    gcs_managed_ledger_offload_bucket: str | None = None
    gcs_managed_ledger_offload_max_block_size_in_bytes: int | None = 128 << 20
    gcs_managed_ledger_offload_read_buffer_size_in_bytes: int | None = 1 << 20
    gcs_managed_ledger_offload_service_account_key_file: str | None = None
    file_system_profile_path: str | None = None
    file_system_uri: str | None = field(default=None, name="fileSystemURI")
    managed_ledger_offload_bucket: str | None = None
    managed_ledger_offload_region: str | None = None
    managed_ledger_offload_service_endpoint: str | None = None
    managed_ledger_offload_max_block_size_in_bytes: int | None = None
    managed_ledger_offload_read_buffer_size_in_bytes: int | None = None

    @property
    def driver(self) -> str:
        """In lower case, empty without one."""
        return (self.managed_ledger_offload_driver or "").lower()

    @property
    def has_bucket(self) -> bool:
        """Whether the driver knows where to write."""
        if self.managed_ledger_offload_bucket or self.driver in _OF_FILES:
            return True
        if self.driver in _OF_S3:
            return bool(self.s3_managed_ledger_offload_bucket)
        return self.driver in _OF_GOOGLE and bool(self.gcs_managed_ledger_offload_bucket)

    def to_record(self) -> JsonObject:
        """The stored form, without what is not set. What Apache's getters say of the driver is
        written too, as Jackson does it.
        """
        found: JsonObject = msgspec.to_builtins(self)
        kinds = {"s3Driver": _OF_S3, "gcsDriver": _OF_GOOGLE, "fileSystemDriver": _OF_FILES}
        return {name: value for name, value in found.items() if value is not None} | {
            name: self.driver in drivers for name, drivers in kinds.items()
        }


class ShownOffload(OffloadPolicies, rename="camel"):
    """As they are answered: with what Apache's getters say of the driver."""

    s3_driver: bool = False
    gcs_driver: bool = False
    file_system_driver: bool = False


def check_offload(policies: OffloadPolicies | None) -> OffloadPolicies:
    """The policies of a body. Raises RestError 412."""
    if policies is None:
        raise rest.RestError(412, "The offloadPolicies must be specified for namespace offload.")
    if policies.driver not in [known.lower() for known in DRIVERS]:
        text = f"The driver is not supported, support value: {','.join(DRIVERS)}"
        raise rest.RestError(412, text)
    if not policies.has_bucket:
        raise rest.RestError(412, "The bucket must be specified for namespace offload.")
    return policies


def stored_offload(record: JsonObject) -> JsonObject | None:
    """The policies in a namespace's record, with the defaults of what isn't there; None if there
    are none.
    """
    found = record.get(FIELD)
    if not isinstance(found, dict):
        return None
    try:
        known = jackson.bind(found, OffloadPolicies, FIELD)
    except jackson.Unbindable:
        return found
    return cast(OffloadPolicies, known).to_record()


def _with_offload(record: JsonObject, policies: JsonObject) -> JsonObject:
    """The record with these policies, and with what older ones said in members of their own."""
    changed = dict(record)
    for name, (older, unset) in _OLDER.items():
        before = changed.pop(older, unset)
        if before not in (unset, None):
            policies.setdefault(name, before)
        if unset is not None:
            changed[older] = unset
    bound = cast(OffloadPolicies, jackson.bind(policies, OffloadPolicies, FIELD))
    return changed | {FIELD: bound.to_record()}


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""

    async def get(request: Request) -> Response:
        record = await policies_of(service, rest.namespace_of(request))
        return rest.ok_or_empty(stored_offload(record), ShownOffload)

    async def post(request: Request) -> Response:
        wanted = check_offload(await rest.read_body(request, OffloadPolicies))
        namespace = rest.namespace_of(request)
        await change_policies(
            service, namespace, lambda old: _with_offload(old, wanted.to_record())
        )
        return rest.no_content()

    async def remove(request: Request) -> Response:
        def change(old: JsonObject) -> JsonObject:
            for older, unset in _OLDER.values():
                old.pop(older, None)
                if unset is not None:
                    old[older] = unset
            old.pop(FIELD, None)
            return old

        namespace = rest.namespace_of(request)
        if not await service.namespaces.exists(namespace):
            # As Apache's broker says it.
            raise rest.RestError(409, "Concurrent modification")
        await change_policies(service, namespace, change)
        return rest.no_content()

    async def scan(request: Request) -> Response:
        await policies_of(service, rest.namespace_of(request))
        raise rest.RestError(501, NOT_BUILT)

    one = "/admin/v2/namespaces/{tenant}/{namespace}"
    lag = one + "/offloadDeletionLagMs"
    return [
        *rest.at(one + "/offloadPolicies", get=get, post=post),
        rest.route("DELETE", one + "/removeOffloadPolicies", remove),
        rest.route("GET", one + "/scanOffloadedLedgers", scan),
        *_number_routes(service, one + "/offloadThreshold", _IN_BYTES, rest.no_content),
        *_number_routes(service, one + "/offloadThresholdInSeconds", _IN_SECONDS, Response),
        *_number_routes(service, lag, _LAG, rest.no_content, removable=True),
    ]


def _number_routes(
    service: BrokerService,
    path: str,
    member: str,
    done: Callable[[], Response],
    *,
    removable: bool = False,
) -> list[Route]:
    """GET and PUT, and DELETE of a `removable` one, of one number among the policies."""
    older, unset = _OLDER[member]

    async def get(request: Request) -> Response:
        record = await policies_of(service, rest.namespace_of(request))
        policies = stored_offload(record)
        found = policies.get(member) if policies is not None else None
        if found is None and (policies is None or not removable):
            found = record.get(older, unset)
        return rest.ok_or_empty(found, int)

    async def put(request: Request) -> Response:
        return await change(request, await rest.required_body(request, int))

    async def delete(request: Request) -> Response:
        return await change(request, None)

    async def change(request: Request, value: int | None) -> Response:
        def changed(old: JsonObject) -> JsonObject:
            policies = stored_offload(old) or {}
            policies.pop(member, None)
            if value is not None:
                policies[member] = value
            return _with_offload(old, policies)

        await change_policies(service, rest.namespace_of(request), changed)
        return done()

    found = rest.at(path, get=get, put=put)
    return [*found, rest.route("DELETE", path, delete)] if removable else found
