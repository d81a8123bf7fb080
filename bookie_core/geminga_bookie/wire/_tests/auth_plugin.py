"""Plug-ins of the tests: the client proves by three rounds that it knows a word."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from geminga_bookie.wire.auth import AuthFailed, AuthPeer, AuthStep

NAME = "WordPlugin"
ROUNDS = 3


class WordAuth:
    """At the server."""

    plugin_name = NAME

    def __init__(self, word: bytes = b"word", *, hangs: bool = False) -> None:
        self._word = word
        self._hangs = hangs

    def begin(self, peer: AuthPeer) -> _Exchange:
        return _Exchange(self._word, self._hangs)


class _Exchange:
    def __init__(self, word: bytes, hangs: bool) -> None:
        self._word = word
        self._hangs = hangs
        self._rounds = 0

    async def process(self, payload: bytes) -> AuthStep:
        if self._hangs:
            await trio.sleep_forever()
        if payload == b"never":
            return AuthStep(b"go on", False)
        if payload == b"error":
            raise ValueError("a fault of the plug-in")
        if payload != self._word + b" %d" % self._rounds:
            raise AuthFailed("wrong word")
        self._rounds += 1
        return AuthStep(b"ok %d" % self._rounds, self._rounds == ROUNDS)


class WordClient:
    """At the client."""

    plugin_name = NAME

    def __init__(self, word: bytes = b"word") -> None:
        self._word = word

    def begin(self) -> _ClientExchange:
        return _ClientExchange(self._word)


class _ClientExchange:
    def __init__(self, word: bytes) -> None:
        self._word = word

    async def first(self) -> bytes:
        return self._word + b" 0"

    async def process(self, payload: bytes) -> bytes | None:
        if not payload.startswith(b"ok "):
            raise AuthFailed("the bookie says something else")
        number = int(payload[3:])
        return None if number == ROUNDS else self._word + b" %d" % number


def server(settings: Mapping[str, str]) -> WordAuth:
    """As configurations name it."""
    return WordAuth()


def client(settings: Mapping[str, str]) -> WordClient:
    """As configurations name it; the broker's parameters may have the word."""
    return WordClient(settings.get("word", "word").encode())
