"""One request by HTTP/1.1 over a new stream: enough for lookups, tokens and admin calls. With
connections that are kept: `client.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from geminga_runtime.errors import ConnectionLost
from geminga_runtime.http.answers import BODY_BYTES_MAX as BODY_BYTES_MAX
from geminga_runtime.http.answers import METHODS_WITH_BODY, request_head
from geminga_runtime.http.answers import AnswerReader as AnswerReader
from geminga_runtime.http.answers import BadHttpAnswer as BadHttpAnswer
from geminga_runtime.http.answers import HttpAnswer as HttpAnswer
from geminga_runtime.stream import FramedStream


async def get(
    stream: FramedStream, host: str, target: str, headers: Mapping[str, str]
) -> HttpAnswer:
    """Request `target` (path and query) from `host` (with its port) and close the stream.

    Raises BadHttpAnswer and ConnectionLost; deadlines are the caller's.
    """
    return await ask(stream, "GET", host, target, headers)


async def post(
    stream: FramedStream, host: str, target: str, headers: Mapping[str, str], body: bytes
) -> HttpAnswer:
    """The same with a body to send; its type is the caller's header."""
    return await ask(stream, "POST", host, target, headers, body)


async def ask(
    stream: FramedStream,
    method: str,
    host: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    *,
    body_bytes_max: int = BODY_BYTES_MAX,
) -> HttpAnswer:
    """The same with any method (but HEAD). `body_bytes_max` bounds the response's body."""
    reader = AnswerReader(body_bytes_max)
    failure: BadHttpAnswer | ConnectionLost | None = None
    try:
        if body or method in METHODS_WITH_BODY:
            headers = {**headers, "Content-Length": str(len(body))}
        written = request_head(method, host, target, headers) + body
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.run_writer)
            stream.write(written)
            try:
                while not reader.is_whole:
                    data = await stream.receive()
                    if data:
                        reader.feed(data)
                    else:
                        reader.end()
            except (BadHttpAnswer, ConnectionLost) as error:
                failure = error
            nursery.cancel_scope.cancel()
    finally:
        await stream.aclose()
    if failure is not None:
        raise failure
    return reader.answer
