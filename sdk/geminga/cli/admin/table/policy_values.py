"""Options of policies, and the bodies that they make: the same for namespaces and topics."""

from __future__ import annotations

import math
from collections.abc import Callable

import click

from geminga.cli.admin.declare import EITHER, Option, Values, flag, listed, number, text
from geminga.cli.admin.values import MIB, either

RATE = (
    number("-md --msg-dispatch-rate", "messages", "Messages in a period; -1: no bound.",
           default=-1),
    number("-bd --byte-dispatch-rate", "bytes_", "Bytes in a period; -1: no bound.", default=-1),
    number("-dt --dispatch-rate-period", "period_s", "Seconds of a period.", default=1),
    flag("-rp --relative-to-publish-rate", "relative", "Above the rate of publishing."),
)  # fmt: skip
PUBLISH_RATE = (
    number("-m --msg-publish-rate", "messages", "Messages/s; -1: no bound.", default=-1),
    number("-b --byte-publish-rate", "bytes_", "Bytes/s; -1: no bound.", default=-1),
)
SUBSCRIBE_RATE = (
    number("-sr --subscribe-rate", "rate", "Of one consumer in a period; -1: no bound.",
           default=-1),
    number("-st --subscribe-rate-period", "period_s", "Seconds of a period.", default=30),
)  # fmt: skip
EXPIRY = "3h; 0: never."
"""What is told of a time after which messages expire."""
RETENTION = (
    Option("-t --time", "time_s", "seconds", required=True, help="3h; 0: none, -1: for ever."),
    Option("-s --size", "size_bytes", "size", required=True, help="10G; 0: none, -1: no bound."),
)
DELAYED = (
    *EITHER,
    Option("-t --time", "tick_ms", "milliseconds", help="How exactly; by default 1s."),
    Option("-md --maxDelay", "delay_max_ms", "milliseconds", help="Longest delay; 0: no bound."),
)
INACTIVE = (
    flag("-e --enable-delete-while-inactive", "enable", "Delete them."),
    flag("-d --disable-delete-while-inactive", "disable", "Keep them."),
    Option("-t --max-inactive-duration", "time_s", "seconds", required=True, help="10m"),
    Option("-m --delete-mode", "mode", "delete mode", required=True,
           help="delete_when_no_subscriptions or delete_when_subscriptions_caught_up."),
)  # fmt: skip
BACKLOG = (
    Option("-l --limit", "size_bytes", "size", help="10G; -1: no bound."),
    Option("-lt --limitTime", "time_s", "seconds", help="3h; -1: no bound."),
    Option("-p --policy", "policy", "quota policy", required=True,
           help="producer_request_hold, producer_exception or consumer_backlog_eviction."),
    Option("-t --type", "kind", "quota type", default="destination_storage",
           help="destination_storage or message_age."),
)  # fmt: skip
QUOTA_TYPE = Option(
    "-t --type", "kind", "quota type", default="destination_storage",
    help="destination_storage or message_age.",
)  # fmt: skip
TYPES = (
    Option("-t --types", "types", "subscription types", required=True,
           help="Exclusive,Shared,Failover,Key_Shared"),
)  # fmt: skip
FILTERS = (text("-efn --entry-filters-name", "names", "Names between commas.", required=True),)
CLUSTERS = (listed("-c --clusters", "clusters", "Names of clusters.", required=True),)
STORAGE = (
    number("-e --bookkeeper-ensemble", "ensemble", "Bookies of a ledger.", default=2),
    number("-w --bookkeeper-write-quorum", "write_quorum", "Copies of an entry.", default=2),
    number("-a --bookkeeper-ack-quorum", "ack_quorum", "Copies to wait for.", default=2),
    Option("-r --ml-mark-delete-max-rate", "rate", "float", default=0.0,
           help="Writes of a cursor a second; 0: no bound."),
)  # fmt: skip
OFFLOAD = (
    text("-d --driver", "driver", "aws-s3, google-cloud-storage, filesystem, azureblob ...",
         required=True),
    text("-r --region", "region", "Region of the storage."),
    text("-b --bucket", "bucket", "Bucket of the storage."),
    text("-e --endpoint", "endpoint", "Where the storage is."),
    text("-i --aws-id", "aws_id", "Id of the credentials."),
    text("-s --aws-secret", "aws_secret", "Secret of the credentials."),
    text("-ro --ro --s3-role", "role", "Role to take."),
    text("-rsn --s3-role-session-name", "session", "Name of the role's session."),
    Option("-mbs --maxBlockSize", "block_bytes", "size", help="By default 64M."),
    Option("-rbs --readBufferSize", "buffer_bytes", "size", help="By default 1M."),
    Option("-oae --offloadAfterElapsed", "deletion_lag_ms", "milliseconds",
           help="Keep a copy in BookKeeper for this time."),
    Option("-oat --offloadAfterThreshold", "threshold_bytes", "size", help="Offload above this."),
    Option("-oats --offloadAfterThresholdInSeconds", "threshold_s", "seconds",
           help="Offload what is older."),
    text("-orp --offloadedReadPriority", "priority", "tiered-storage-first or bookkeeper-first."),
)  # fmt: skip


def rate(values: Values) -> object:
    """A DispatchRate."""
    return {
        "dispatchThrottlingRateInMsg": values["messages"],
        "dispatchThrottlingRateInByte": values["bytes_"],
        "relativeToPublishRate": values.get("relative", False),
        "ratePeriodInSecond": values["period_s"],
    }


def publish_rate(values: Values) -> object:
    """A PublishRate."""
    return {
        "publishThrottlingRateInMsg": values["messages"],
        "publishThrottlingRateInByte": values["bytes_"],
    }


def subscribe_rate(values: Values) -> object:
    """A SubscribeRate."""
    return {
        "subscribeThrottlingRatePerConsumer": values["rate"],
        "ratePeriodInSecond": values["period_s"],
    }


def retention(values: Values) -> object:
    """A RetentionPolicies."""
    time_s, size_bytes = values["time_s"], values["size_bytes"]
    assert isinstance(time_s, int)
    assert isinstance(size_bytes, int)
    return {
        "retentionTimeInMinutes": _counted("--time", time_s, "seconds", 60, "minute", "30m"),
        "retentionSizeInMB": _counted("--size", size_bytes, "bytes", MIB, "MB", "100M"),
    }


def _counted(option: str, given: int, of: str, size: int, unit: str, like: str) -> int:
    """The value in the policy's unit; 0 and -1 as they are. Tells of one that is rounded. Raises
    UsageError for one that would become nothing.
    """
    if given in (0, -1):
        return given
    if given < size:
        raise click.UsageError(
            f"{option}: {given} {of} are less than one {unit}; write the unit, such as {like}"
        )
    if given % size:
        click.echo(f"{option}: {given} {of} are rounded to {given // size} {unit}", err=True)
    return given // size


def delayed(values: Values) -> object:
    """A DelayedDeliveryPolicies."""
    tick_ms, delay_max_ms = values["tick_ms"], values["delay_max_ms"]
    return {
        "active": either(values),
        "tickTime": 1000 if tick_ms is None else tick_ms,
        "maxDeliveryDelayInMillis": 0 if delay_max_ms is None else delay_max_ms,
    }


def inactive(values: Values) -> object:
    """An InactiveTopicPolicies."""
    return {
        "deleteWhileInactive": either(values),
        "maxInactiveDurationSeconds": values["time_s"],
        "inactiveTopicDeleteMode": values["mode"],
    }


def backlog(values: Values) -> object:
    """A BacklogQuota."""
    size_bytes, time_s = values.pop("size_bytes"), values.pop("time_s")
    return {
        "limitSize": -1 if size_bytes is None else size_bytes,
        "limitTime": -1 if time_s is None else time_s,
        "policy": values.pop("policy"),
    }


def storage(values: Values) -> object:
    """A PersistencePolicies. Raises UsageError for quorums and a rate that can't be."""
    ensemble, write, ack = values["ensemble"], values["write_quorum"], values["ack_quorum"]
    assert isinstance(ensemble, int)
    assert isinstance(write, int)
    assert isinstance(ack, int)
    if not ensemble >= write >= ack > 0:
        raise click.UsageError("ensemble >= write quorum >= ack quorum > 0 must hold")
    rate = values["rate"]
    if not isinstance(rate, float) or not 0 <= rate < math.inf:
        raise click.UsageError("--ml-mark-delete-max-rate must be 0 (no bound) or more")
    return {
        "bookkeeperEnsemble": ensemble,
        "bookkeeperWriteQuorum": write,
        "bookkeeperAckQuorum": ack,
        "managedLedgerMaxMarkDeleteRate": rate,
    }


def offload(values: Values) -> object:
    """An OffloadPolicies: under the names of all drivers, and for S3 and Google under their own."""
    driver = str(values["driver"])
    priority = values["priority"]
    made: dict[str, object] = {
        "managedLedgerOffloadDriver": driver,
        "managedLedgerOffloadRegion": values["region"],
        "managedLedgerOffloadBucket": values["bucket"],
        "managedLedgerOffloadServiceEndpoint": values["endpoint"],
        "managedLedgerOffloadMaxBlockSizeInBytes": values["block_bytes"],
        "managedLedgerOffloadReadBufferSizeInBytes": values["buffer_bytes"],
        "managedLedgerOffloadThresholdInBytes": values["threshold_bytes"],
        "managedLedgerOffloadThresholdInSeconds": values["threshold_s"],
        "managedLedgerOffloadDeletionLagInMillis": values["deletion_lag_ms"],
    }
    if priority is not None:
        made["managedLedgerOffloadedReadPriority"] = str(priority).upper().replace("-", "_")
    prefix = {"s3": "s3", "aws-s3": "s3", "google-cloud-storage": "gcs"}.get(driver.lower())
    if prefix is not None:
        made |= {
            f"{prefix}ManagedLedgerOffload{name}": values[to]
            for name, to in _OWN_NAMES
            if prefix == "s3" or to not in _S3_ONLY
        }
    return {name: value for name, value in made.items() if value is not None}


_OWN_NAMES = (
    ("Region", "region"),
    ("Bucket", "bucket"),
    ("MaxBlockSizeInBytes", "block_bytes"),
    ("ReadBufferSizeInBytes", "buffer_bytes"),
    ("ServiceEndpoint", "endpoint"),
    ("CredentialId", "aws_id"),
    ("CredentialSecret", "aws_secret"),
    ("Role", "role"),
    ("RoleSessionName", "session"),
)
_S3_ONLY = frozenset({"endpoint", "aws_id", "aws_secret", "role", "session"})


def one(to: str, key: str = "") -> Callable[[Values], object]:
    """A function that takes the value of one option, alone or as an object's member."""

    def made(values: Values) -> object:
        return {key: values[to]} if key else values[to]

    return made
