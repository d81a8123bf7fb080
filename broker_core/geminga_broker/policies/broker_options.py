"""The limits of topics without policies of their own, from the broker's configuration."""

from __future__ import annotations

from geminga_broker.config import BrokerConfig
from geminga_broker.policies.model import TopicOptions
from geminga_broker.subscription.entry_filters import load_filters
from geminga_protocol.pb.pulsar_api_pb2 import CommandSubscribe


def broker_options(config: BrokerConfig) -> TopicOptions:
    """The limits of topics without policies of their own. Raises ConfigError."""
    clients = config.clients
    types = [part.strip() for part in clients.subscription_types.split(",")]
    return TopicOptions(
        producers_max=clients.producers_per_topic_max,
        consumers_max=clients.consumers_per_topic_max,
        consumers_per_subscription_max=clients.consumers_per_subscription_max,
        subscriptions_max=clients.subscriptions_per_topic_max,
        unacked_per_consumer_max=clients.unacked_per_consumer_max,
        unacked_per_subscription_max=clients.unacked_per_subscription_max,
        encryption_required=clients.encryption_required,
        delayed_delivery=clients.delayed_delivery,
        batch_index_ack=clients.batch_index_ack,
        expose_broker_entry_metadata=config.log.expose_entry_metadata,
        subscription_types=frozenset(
            CommandSubscribe.SubType.Value(name) for name in types if name
        ),
        dispatch_entries_max=clients.dispatch_entries_max,
        dispatch_bytes_max=clients.dispatch_bytes_max,
        consistent_hashing=clients.consistent_hashing,
        hash_points=clients.hash_points,
        look_ahead_per_consumer_entries=clients.look_ahead_per_consumer_entries,
        look_ahead_entries_max=clients.look_ahead_entries_max,
        entry_filters=load_filters(config.policies.entry_filters),
    )
