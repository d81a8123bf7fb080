"""A client's command in a task of its own; whatever fails becomes an answer (spec PR-16)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from geminga_bookie.errors import BookkeeperError
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import LogError
from geminga_protocol.errors import ProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_runtime.metadata.api import MetadataError

_log = logging.getLogger(__name__)

TEXT_CHARACTERS_MAX = 16 * 1024
"""Of an answer's text: some quote schemas."""

Refuse = Callable[[ServerError, str], bytes]


def refusal_of(error: Exception) -> tuple[ServerError, str]:
    """Code and text for the client; internal errors are told without their details."""
    text = str(error) or type(error).__name__
    if len(text) > TEXT_CHARACTERS_MAX:
        text = text[:TEXT_CHARACTERS_MAX] + "..."
    if isinstance(error, BrokerError | ProtocolError):
        return error.code, text
    if isinstance(error, MetadataError):
        return ServerError.MetadataError, text
    if isinstance(error, LogError | BookkeeperError):
        return ServerError.PersistenceError, text
    if isinstance(error, trio.TooSlowError):
        return ServerError.ServiceNotReady, "the broker took too long"
    return ServerError.UnknownError, "internal error"


async def run_request(
    write: Callable[[bytes], None],
    ended: Callable[[], None],
    refuse: Refuse,
    run: Callable[..., Awaitable[None]],
    *args: Any,
) -> None:
    """Await `run(*args)`; an error is written as `refuse` puts it."""
    try:
        await run(*args)
    except Exception as error:
        code, text = refusal_of(error)
        if code == ServerError.UnknownError and not isinstance(error, BrokerError):
            _log.exception("command failed: %s", getattr(run, "__name__", run))
        elif not isinstance(error, BrokerError | ProtocolError):
            _log.warning("command %s: %r", getattr(run, "__name__", run), error)
        write(refuse(code, text))
    finally:
        ended()
