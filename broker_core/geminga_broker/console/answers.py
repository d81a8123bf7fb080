"""The parts of REST answers that pages show; all else in them is not read."""

from __future__ import annotations

import msgspec


class Consumer(msgspec.Struct, rename="camel"):
    """A consumer of a subscription."""

    consumer_name: str | None = None
    address: str | None = None
    msg_rate_out: float = 0.0
    available_permits: int = 0
    unacked_messages: int = 0
    blocked_consumer_on_unacked_msgs: bool = False
    connected_since: str | None = None
    client_version: str | None = None


class Publisher(msgspec.Struct, rename="camel"):
    """A producer."""

    producer_name: str | None = None
    address: str | None = None
    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    connected_since: str | None = None
    client_version: str | None = None


class Subscription(msgspec.Struct, rename="camel"):
    """A subscription; its numbers are of messages."""

    msg_rate_out: float = 0.0
    msg_rate_redeliver: float = 0.0
    message_ack_rate: float = 0.0
    msg_out_counter: int = 0
    msg_backlog: int = 0
    backlog_size: int = 0
    msg_delayed: int = 0
    unacked_messages: int = 0
    type: str | None = None
    last_acked_timestamp: int = 0
    last_consumed_timestamp: int = 0
    total_msg_expired: int = 0
    is_durable: bool = True
    consumers: list[Consumer] = []


class Topic(msgspec.Struct, rename="camel"):
    """A topic, or the sum of its partitions."""

    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    msg_in_counter: int = 0
    msg_out_counter: int = 0
    average_msg_size: float = 0.0
    storage_size: int = 0
    backlog_size: int = 0
    publishers: list[Publisher] = []
    subscriptions: dict[str, Subscription] = {}
    owner_broker: str | None = None
    partitions: dict[str, Topic] = {}

    @property
    def backlog(self) -> int:
        """Messages that the subscription with most of them still has before it."""
        return max((each.msg_backlog for each in self.subscriptions.values()), default=0)

    @property
    def consumers(self) -> int:
        """Of all subscriptions."""
        return sum(len(each.consumers) for each in self.subscriptions.values())


class Ledger(msgspec.Struct, rename="camel"):
    """A ledger of a topic; the last one is still being written, and has no numbers yet."""

    ledger_id: int = -1
    entries: int = 0
    size: int = 0


class Internals(msgspec.Struct, rename="camel"):
    """How a topic is stored."""

    number_of_entries: int = 0
    total_size: int = 0
    current_ledger_entries: int = 0
    current_ledger_size: int = 0
    last_confirmed_entry: str | None = None
    last_ledger_created_timestamp: str | None = None
    state: str | None = None
    ledgers: list[Ledger] = []


class Finding(msgspec.Struct):
    """Why a subscription gets nothing, or that it is served."""

    sentence: str = ""
    advice: str = ""
    level: str = ""
    topic: str = ""


class Usage(msgspec.Struct):
    """Of a resource, in percent or in megabytes."""

    usage: float = 0.0
    limit: float = 0.0


class Load(msgspec.Struct, rename="camel"):
    """What a broker does."""

    cpu: Usage = msgspec.field(default_factory=Usage)
    memory: Usage = msgspec.field(default_factory=Usage)
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    num_topics: int = 0
    num_bundles: int = 0
    num_consumers: int = 0
    num_producers: int = 0
    start_timestamp: int = 0
    broker_version_string: str | None = None


class Space(msgspec.Struct, rename="camel"):
    """Of a bookie's disks."""

    free_bytes: int = 0
    total_bytes: int = 0


class Bookie(msgspec.Struct, rename="camel"):
    """A bookie that is registered."""

    bookie_id: str = ""


class Bookies(msgspec.Struct):
    """All of them."""

    bookies: list[Bookie] = []


class Partitions(msgspec.Struct):
    """Of a partitioned topic; 0 for another one."""

    partitions: int = 0


class Schema(msgspec.Struct):
    """A topic's schema."""

    version: int = 0
    type: str = "NONE"
    data: str = ""


class MessageResults(msgspec.Struct, rename="camel"):
    """What came of messages that were sent."""

    message_publish_results: list[MessageResult] = []


class MessageResult(msgspec.Struct, rename="camel"):
    """What came of one."""

    message_id: str | None = None
    error_msg: str | None = None
    error_code: int = 0
