"""Rate limits by token buckets (spec BR-22, BR-37).

A bucket may become negative: a whole run is taken, and the next one waits until the debt is paid.
So no run is split, and the average is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Rate(NamedTuple):
    """Messages and bytes per period; 0 or less is unlimited."""

    messages: int = 0
    bytes: int = 0
    period_s: int = 1
    """0 counts as 1: clients that don't say a period set that."""
    relative: bool = False
    """Whether the publish rate is added (`relativeToPublishRate`)."""

    @property
    def limits(self) -> bool:
        """Whether it limits anything."""
        return self.messages > 0 or self.bytes > 0


class _Bucket:
    """Tokens of one kind; the capacity is one period's rate."""

    __slots__ = ("_at_s", "_capacity", "_per_s", "_tokens")

    def __init__(self, per_period: float, period_s: int, now_s: float) -> None:
        self._capacity = float(per_period)
        self._per_s = per_period / period_s
        self._tokens = self._capacity
        self._at_s = now_s

    def follow(self, per_period: float, period_s: int) -> None:
        """Change the rate."""
        self._capacity = per_period
        self._per_s = per_period / period_s

    def take(self, amount: float, now_s: float) -> float:
        """Take tokens; returns the seconds until one is available, 0 if one is left."""
        tokens = min(self._capacity, self._tokens + (now_s - self._at_s) * self._per_s) - amount
        self._tokens = tokens
        self._at_s = now_s
        # Wait for one whole token, or for a full bucket if it holds less than one.
        missing = min(1.0, self._capacity) - tokens
        return missing / self._per_s if missing > 1e-6 else 0.0

    @property
    def tokens(self) -> float:
        """The tokens at the last `take`."""
        return self._tokens


class RequestLimit:
    """So many requests a second, those of one second at once at most; more are refused (Apache's
    RateLimitingFilter).
    """

    def __init__(self, per_s: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._bucket = _Bucket(per_s, 1, clock())
        self._bucket.take(per_s, clock())  # nothing is saved up yet
        self.rejected = 0

    def takes_one(self) -> bool:
        """Count a request; whether it is to be answered. One is taken on credit."""
        now_s = self._clock()
        self._bucket.take(0, now_s)
        if self._bucket.tokens < 0:
            self.rejected += 1
            return False
        self._bucket.take(1, now_s)
        return True


Published = Callable[[float], tuple[float, float]]
"""Time -> (messages, bytes) published in a second."""


class RateLimit:
    """A limit of messages and bytes, which may be shared; `published` is for relative rates."""

    __slots__ = ("_bytes", "_follows_s", "_messages", "_published", "rate")

    def __init__(self, rate: Rate, now_s: float, published: Published | None = None) -> None:
        self.rate = rate
        self._published = published if rate.relative else None
        self._follows_s = now_s
        period_s = max(1, rate.period_s)
        self._messages = _Bucket(rate.messages, period_s, now_s) if rate.messages > 0 else None
        self._bytes = _Bucket(rate.bytes, period_s, now_s) if rate.bytes > 0 else None

    def take(self, messages: int, size_bytes: int, now_s: float) -> float:
        """Count a run; returns the seconds to wait before the next."""
        wait_s = 0.0
        if self._published is not None and now_s >= self._follows_s:
            self._follow(self._published, now_s)
        if self._messages is not None:
            wait_s = self._messages.take(messages, now_s)
        if self._bytes is not None:
            wait_s = max(wait_s, self._bytes.take(size_bytes, now_s))
        return wait_s

    def _follow(self, published: Published, now_s: float) -> None:
        """Add the current publish rate, once in a period."""
        period_s = max(1, self.rate.period_s)
        messages, size_bytes = published(now_s)
        if self._messages is not None:
            self._messages.follow(self.rate.messages + messages * period_s, period_s)
        if self._bytes is not None:
            self._bytes.follow(self.rate.bytes + size_bytes * period_s, period_s)
        self._follows_s = now_s + period_s

    @property
    def messages_left(self) -> int | None:
        """How many messages are allowed, by the last `take`; None: any number."""
        return None if self._messages is None else max(1, int(self._messages.tokens))


SUBSCRIBERS_MAX = 100_000
"""Consumers that a subscribe limit counts at once; above it all counts restart."""


class SubscribeLimit:
    """How often each consumer may subscribe in a fixed period (Apache's `SubscribeRateLimiter`)."""

    __slots__ = ("_taken", "_until_s", "rate")

    def __init__(self, rate: Rate, now_s: float) -> None:
        self.rate = rate
        self._taken: dict[tuple[str, str, int], int] = {}
        self._until_s = now_s + rate.period_s

    def take(self, consumer: tuple[str, str, int], now_s: float) -> bool:
        """Count a subscribe; False, and nothing counted, if the limit is reached."""
        if now_s >= self._until_s or len(self._taken) >= SUBSCRIBERS_MAX:
            self._taken.clear()
            self._until_s = now_s + self.rate.period_s
        taken = self._taken.get(consumer, 0)
        if taken >= self.rate.messages:
            return False
        self._taken[consumer] = taken + 1
        return True


def take_all(limits: Iterable[RateLimit], messages: int, size_bytes: int, now_s: float) -> float:
    """Count a run at all limits; returns the longest wait."""
    return max([limit.take(messages, size_bytes, now_s) for limit in limits], default=0.0)


def limit_of(
    known: Iterable[RateLimit], rate: Rate, now_s: float, published: Published | None = None
) -> tuple[RateLimit, ...]:
    """A limit for the rate: `known` if it has the same rate, so that its debts last. Empty if the
    rate is unlimited.
    """
    if not rate.limits:
        return ()
    for limit in known:
        if limit.rate == rate:
            return (limit,)
    return (RateLimit(rate, now_s, published),)
