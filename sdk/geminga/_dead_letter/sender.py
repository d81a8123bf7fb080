"""Sends retry letters and dead letters (spec SDK-25)."""

from __future__ import annotations

import logging
import string
from collections.abc import Awaitable, Callable, Mapping

import trio

from geminga._connection.core import Core
from geminga._consuming.subscribe import Subscription
from geminga._dead_letter.letters import (
    dead_letter_topic,
    letter_extras,
    letter_properties,
    producer_name,
    retry_letter,
)
from geminga._dead_letter.schemas import LetterSchemas
from geminga.errors import CryptoError, GemingaError, InvalidArgumentError
from geminga.message import Message
from geminga.options import DeadLetterPolicy
from geminga.producer import Producer, partitions_of
from geminga_runtime.clock import wall_clock_ms

logger = logging.getLogger("geminga")

_ALPHANUMERIC = string.ascii_letters + string.digits


class DeadLetterSender:
    """Sends a consumer's letters; each topic's producer is created by its first letter."""

    def __init__(
        self,
        core: Core,
        subscription: Subscription,
        policy: DeadLetterPolicy,
        create_producer: Callable[..., Awaitable[Producer]],
    ) -> None:
        self.policy = policy
        self._core = core
        self._schemas = LetterSchemas(core)
        self._subscription = subscription
        self._create_producer = create_producer
        self._producers: dict[str, Producer] = {}
        self._opening = trio.Lock()

    async def send_dead(self, message: Message) -> None:
        """Send a message to the dead-letter topic. Raises GemingaError."""
        name = self._subscription.name
        topic = dead_letter_topic(self.policy, message.topic_name, name)
        await self._send(topic, "DLQ", message, letter_properties(message, name), 0)

    async def send_again(
        self, message: Message, delay_s: float, properties: Mapping[str, str]
    ) -> bool:
        """Send a message to the retry topic, to be delivered after the delay; after its last try to
        the dead-letter topic: then it returns True. Raises InvalidArgumentError without a retry
        topic, and GemingaError.
        """
        policy = self.policy
        if policy.retry_letter_topic is None:
            raise InvalidArgumentError("reconsume_later needs retry_enabled")
        delay_ms = round(delay_s * 1000)
        letter = retry_letter(message, self._subscription.name, delay_ms, properties)
        if letter.times > policy.max_redeliver_count:
            dead = dead_letter_topic(policy, message.topic_name, self._subscription.name)
            await self._send(dead, "DLQ", message, letter.properties, 0)
            return True
        await self._send(policy.retry_letter_topic, "RETRY", message, letter.properties, delay_ms)
        return False

    async def _send(
        self, topic: str, kind: str, message: Message, properties: dict[str, str], delay_ms: int
    ) -> None:
        if message._entry.is_encrypted:
            # A letter can't have its keys, so no consumer could decrypt it.
            raise CryptoError("a message that is still encrypted can't be a letter", topic=topic)
        producer = await self._producer_of(topic, kind, message.topic_name)
        version = await self._schemas.version_of(message, partitions_of(producer).parts[0].topic)
        deliver_at_ms = wall_clock_ms() + delay_ms if delay_ms else None
        extras = letter_extras(message, properties, deliver_at_ms, version)
        try:
            # As in Java, a full producer fails the letter: the message is redelivered.
            receipt = partitions_of(producer).send_checked(message.data, extras, None)
            await receipt.wait()
        except GemingaError:
            await self._replace(topic, producer)  # noqa: ASYNC120
            raise

    async def _replace(self, topic: str, producer: Producer) -> None:
        """Make the next letter open a new producer if this one has failed permanently."""
        failed = any(part.error is not None for part in partitions_of(producer).parts)
        if failed and self._producers.get(topic) is producer:
            del self._producers[topic]
            await producer.aclose()

    async def _producer_of(self, topic: str, kind: str, source: str) -> Producer:
        async with self._opening:
            producer = self._producers.get(topic)
            if producer is None:
                name = initial = None
                if kind == "DLQ":
                    subscription = self._subscription
                    chance = "".join(self._core.chance.choices(_ALPHANUMERIC, k=5))
                    name = producer_name(
                        source, subscription.name, subscription.consumer_name, chance
                    )
                    # Only dead letters may have an initial subscription (PIP-124).
                    initial = self.policy.initial_subscription_name
                producer = self._producers[topic] = await self._create_producer(
                    topic,
                    producer_name=name,
                    batching_enabled=False,
                    chunking_enabled=True,
                    initial_subscription_name=initial,
                    encryption_keys=self.policy.encryption_keys,
                    crypto_key_reader=self._subscription.options.crypto_key_reader,
                )
            return producer

    async def aclose(self) -> None:
        """Close the producers, after pending letters. Idempotent."""
        async with self._opening:
            producers, self._producers = list(self._producers.values()), {}
            for producer in producers:
                await producer.aclose()
