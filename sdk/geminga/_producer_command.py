"""How a producer makes itself known (spec SDK-02). Pure."""

from __future__ import annotations

from geminga.options import ProducerAccessMode as AccessMode
from geminga.options import ProducerOptions
from geminga_protocol.commands import producing
from geminga_protocol.pb.pulsar_api_pb2 import ProducerAccessMode

_ACCESS_MODES = {
    AccessMode.SHARED: ProducerAccessMode.Shared,
    AccessMode.EXCLUSIVE: ProducerAccessMode.Exclusive,
    AccessMode.WAIT_FOR_EXCLUSIVE: ProducerAccessMode.WaitForExclusive,
    AccessMode.EXCLUSIVE_WITH_FENCING: ProducerAccessMode.ExclusiveWithFencing,
}


def producer_command(
    options: ProducerOptions,
    topic: str,
    producer_id: int,
    request_id: int,
    name: str,
    epoch: int,
    topic_epoch: int | None,
) -> bytes:
    """PRODUCER; `name` is the one that the broker gave before, `epoch` counts attachments."""
    return producing.producer(
        topic,
        producer_id,
        request_id,
        producer_name=name or options.producer_name,
        metadata=options.properties,
        schema=None if options.schema is None else options.schema.info.to_wire(),
        epoch=epoch,
        user_provided_producer_name=options.producer_name is not None,
        access_mode=_ACCESS_MODES[options.access_mode],
        topic_epoch=topic_epoch,
        encrypted=bool(options.encryption_keys),
        initial_subscription_name=options.initial_subscription_name,
    )
