"""A consumer's SUBSCRIBE command."""

from __future__ import annotations

from dataclasses import dataclass, replace

from geminga.options import ConsumerOptions, ConsumerType, InitialPosition
from geminga_protocol.commands import consuming as commands
from geminga_protocol.message_id import EARLIEST_ID, MessageId
from geminga_protocol.pb.pulsar_api_pb2 import (
    AUTO_SPLIT,
    STICKY,
    CommandSubscribe,
    IntRange,
    KeySharedMeta,
)

_TYPES = {
    ConsumerType.EXCLUSIVE: CommandSubscribe.Exclusive,
    ConsumerType.SHARED: CommandSubscribe.Shared,
    ConsumerType.FAILOVER: CommandSubscribe.Failover,
    ConsumerType.KEY_SHARED: CommandSubscribe.Key_Shared,
}
_POSITIONS = {
    InitialPosition.LATEST: CommandSubscribe.Latest,
    InitialPosition.EARLIEST: CommandSubscribe.Earliest,
}


@dataclass(frozen=True)
class Subscription:
    """A subscription, the same for all partitions. `queue_size` is per partition."""

    name: str
    options: ConsumerOptions
    consumer_name: str
    queue_size: int
    start_message_id: MessageId | None = None
    creates_topics: bool = True

    def for_later(self, queue_size: int) -> Subscription:
        """For a partition or topic found later: from its beginning, as all messages are new."""
        options = replace(self.options, initial_position=InitialPosition.EARLIEST)
        first = None if self.start_message_id is None else EARLIEST_ID
        return replace(self, options=options, queue_size=queue_size, start_message_id=first)

    def command(
        self,
        topic: str,
        consumer_id: int,
        request_id: int,
        resume_id: MessageId | None,
        consumer_epoch: int,
    ) -> bytes:
        """SUBSCRIBE."""
        options = self.options
        return commands.subscribe(
            topic,
            self.name,
            _TYPES[options.consumer_type],
            consumer_id,
            request_id,
            commands.SubscribeOptions(
                consumer_name=self.consumer_name,
                priority_level=options.priority_level,
                durable=options.durable,
                # The broker stores a durable subscription's position.
                start_message_id=None if options.durable else resume_id,
                metadata=options.properties,
                schema=None if options.schema is None else options.schema.info.to_wire(),
                initial_position=_POSITIONS[options.initial_position],
                read_compacted=options.read_compacted,
                replicate_subscription_state=options.replicate_subscription_state,
                force_topic_creation=self.creates_topics,
                key_shared_meta=self._key_shared_meta(),
                subscription_properties=options.subscription_properties,
                consumer_epoch=consumer_epoch,
            ),
        )

    def _key_shared_meta(self) -> KeySharedMeta | None:
        if self.options.consumer_type is not ConsumerType.KEY_SHARED:
            return None
        policy = self.options.key_shared_policy
        if policy is None:
            return KeySharedMeta(keySharedMode=AUTO_SPLIT)
        return KeySharedMeta(
            keySharedMode=STICKY if policy.sticky_ranges else AUTO_SPLIT,
            hashRanges=[IntRange(start=start, end=end) for start, end in policy.sticky_ranges],
            allowOutOfOrderDelivery=policy.allow_out_of_order_delivery,
        )
