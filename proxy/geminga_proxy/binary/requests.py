"""Requests that a proxy passes on to brokers, and their responses (spec PX-01). Pure.

All responses but LOOKUP_RESPONSE are passed back unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from geminga_protocol.commands import answers, lookup, schemas
from geminga_protocol.encode import frame as encode
from geminga_protocol.frames import Frame
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    ServerError,
)
from geminga_proxy.addresses import Address, BadAddress, parse_url
from geminga_proxy.bounds import REQUEST_BYTES_MAX, SMALL_BYTES

REDIRECTS_MAX = 20

_C = BaseCommand.Type


class Kind(NamedTuple):
    """A command that is passed on."""

    counted_as: str
    field: str
    refuse: Callable[[int, ServerError, str], bytes]


PASSED_ON: dict[int, Kind] = {
    _C.LOOKUP: Kind("lookup", "lookupTopic", lookup.lookup_error),
    _C.PARTITIONED_METADATA: Kind(
        "partitions", "partitionMetadata", lookup.partitioned_metadata_error
    ),
    _C.GET_TOPICS_OF_NAMESPACE: Kind("topics", "getTopicsOfNamespace", answers.error),
    _C.GET_SCHEMA: Kind("schema", "getSchema", schemas.get_schema_error),
    _C.GET_OR_CREATE_SCHEMA: Kind(
        "schema", "getOrCreateSchema", schemas.get_or_create_schema_error
    ),
}
"""Commands that a proxy serves without a tunnel, and the error response of each."""

ANSWERS: dict[int, str] = {
    _C.LOOKUP_RESPONSE: "lookupTopicResponse",
    _C.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    _C.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
    _C.GET_SCHEMA_RESPONSE: "getSchemaResponse",
    _C.GET_OR_CREATE_SCHEMA_RESPONSE: "getOrCreateSchemaResponse",
    _C.ERROR: "error",
}
"""Brokers' responses, and the field that holds each."""


_CLAIMS = ("original_principal", "original_auth_data", "original_auth_method")
"""Whom a proxy speaks for: CONNECT tells brokers. Old brokers believe a lookup, so a client's
value is not passed on.
"""


class LookupFailed(Exception):
    """A broker's response can't be used. The text is for the log."""


class Redirected(NamedTuple):
    """Ask this broker instead."""

    address: Address


class Answer(NamedTuple):
    """The response to the client, and the broker that it names."""

    data: bytes
    names: Address | None = None


class ClientRequest:
    """One request of a client; a LOOKUP is sent on to each broker that it is redirected to."""

    __slots__ = ("_command", "_redirects", "held_bytes", "id", "kind")

    def __init__(self, frame: Frame) -> None:
        """`frame.type` must be in PASSED_ON."""
        self.kind = PASSED_ON[frame.type]
        self._command = frame.command
        if frame.type in (_C.LOOKUP, _C.PARTITIONED_METADATA):
            self._command = BaseCommand(type=frame.command.type)
            body = getattr(self._command, self.kind.field)
            body.CopyFrom(getattr(frame.command, self.kind.field))
            for name in _CLAIMS:
                body.ClearField(name)
        self.id: int = getattr(frame.command, self.kind.field).request_id
        size = frame.command.ByteSize()
        self.held_bytes = 0 if size <= SMALL_BYTES else size
        """Bytes to count for a large request."""
        self._redirects = 0

    def __repr__(self) -> str:
        return f"<ClientRequest {self.kind.field} {self.id}>"

    @property
    def is_too_large(self) -> bool:
        """Whether it is larger than names and patterns need; a request with a schema may be."""
        return self.held_bytes > REQUEST_BYTES_MAX and self.kind.field != "getOrCreateSchema"

    def encoded(self) -> bytes:
        """The request for the next broker."""
        return encode(self._command)

    def refusal(self, code: ServerError, text: str) -> bytes:
        """The error response to the client."""
        return self.kind.refuse(self.id, code, text)

    def follow(self, frame: Frame, *, by_tls: bool) -> Redirected | Answer:
        """Decide on a broker's response; `by_tls`: brokers are connected to by TLS.

        Clients can't reach the brokers that a LOOKUP_RESPONSE names: a redirect is followed by the
        proxy, and a broker is reached through it. Raises LookupFailed.
        """
        if frame.type != _C.LOOKUP_RESPONSE or self.kind.field != "lookupTopic":
            return Answer(encode(frame.command))
        response = frame.command.lookupTopicResponse
        url = response.brokerServiceUrlTls if by_tls else response.brokerServiceUrl
        if response.response == CommandLookupTopicResponse.Redirect:
            address = _address(url, by_tls)
            self._redirects += 1
            if self._redirects == REDIRECTS_MAX:
                raise LookupFailed(f"more than {REDIRECTS_MAX} redirects")
            self._command.lookupTopic.authoritative = response.authoritative
            return Redirected(address)
        if response.response != CommandLookupTopicResponse.Connect:
            return Answer(encode(frame.command))
        names = _address(url, by_tls)
        # The proxy connects to the broker, whether or not the client itself uses TLS.
        response.brokerServiceUrl = response.brokerServiceUrlTls = url
        response.proxy_through_service_url = True
        return Answer(encode(frame.command), names)


def _address(url: str, by_tls: bool) -> Address:
    try:
        return parse_url(url, by_tls=by_tls)
    except BadAddress as error:
        raise LookupFailed(f"invalid broker URL in a lookup response: {error}") from None
