"""One connection to a broker: requests with their responses, and dispatch of other commands.

One task reads, one writes, one keeps it alive. Its producers and consumers are notified when it is
lost; nothing is retried here.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import trio

from geminga._connection.background import protected
from geminga._connection.sinks import ConsumerSink, ProducerSink, TopicListSink
from geminga._options.callbacks import FAILURES
from geminga.auth import Authentication
from geminga.errors import (
    AuthenticationError,
    ConnectionFailedError,
    GemingaError,
    InvalidArgumentError,
    OperationTimeoutError,
    WrongProtocolError,
    from_broker,
)
from geminga_protocol.arrivals import ArrivalReader, MessageRun, ReceiptRun
from geminga_protocol.buffers import Buffer
from geminga_protocol.commands import connection as connection_commands
from geminga_protocol.errors import RemoteProtocolError, other_protocol
from geminga_protocol.frames import BROKEN, SUBMESSAGE, Frame, FramingError
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandCloseProducer,
    FeatureFlags,
    ServerError,
)
from geminga_runtime.errors import ConnectionLost, TooManyRequests
from geminga_runtime.requests import RequestTable
from geminga_runtime.stream import FramedStream
from geminga_runtime.waiters import Promise, Wakeup

logger = logging.getLogger("geminga")

CLIENT_VERSION = "Geminga-Python-v0.1.0"
_STOOD_STILL_S = 1.0
"""A task that wakes this late shows that the process was stopped, or its loop blocked."""


def error_name(code: int) -> str:
    """The ServerError's name; an unknown number as text."""
    try:
        return ServerError.Name(code)
    except ValueError:
        return f"ServerError{code}"


def _made(make: Callable[[int], bytes], request_id: int) -> bytes:
    """The frame of a request. An argument that can't be encoded must end the request alone: of a
    producer's or consumer's own task another error would end the client.
    """
    try:
        return make(request_id)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"an argument can't be encoded: {error}") from error


class Connection:
    """A connection after its stream was opened; `run` serves it until it is lost."""

    def __init__(
        self,
        stream: FramedStream,
        keep_alive_interval_s: float,
        authentication: Authentication | None = None,
        *,
        prefers_tls: bool = False,
    ) -> None:
        self.supports_topic_watchers = False
        self._stream = stream
        self._reader = ArrivalReader()
        self._keep_alive_interval_s = keep_alive_interval_s
        self._requests: RequestTable[BaseCommand] = RequestTable()
        self._waiting: dict[int, trio.CancelScope] = {}
        # Receivers of commands, by the ids of producers, consumers and topic watchers:
        self.producers: dict[int, ProducerSink] = {}
        self.consumers: dict[int, ConsumerSink] = {}
        self.watchers: dict[int, TopicListSink] = {}
        self._connected: Promise[None] = Promise()
        self._authentication = authentication
        self._goes_by_tls: bool | None = prefers_tls
        """Whether to use another broker's TLS URL; None: neither URL, as there is a proxy."""
        self._challenged = Wakeup()
        self.read_at_s = 0.0
        """Time of the last received bytes, by Trio's clock."""
        self._lost_reason: str | None = None

    def __repr__(self) -> str:
        return f"<Connection {self.name} {self._lost_reason or 'open'}>"

    @property
    def name(self) -> str:
        """The broker's address, for logs."""
        return self._stream.name

    @property
    def max_message_size_bytes(self) -> int:
        """The broker's limit of a message's size."""
        return self._reader.max_message_size

    @property
    def is_lost(self) -> bool:
        """Whether the connection can't be used any more."""
        return self._lost_reason is not None

    @property
    def writable(self) -> bool:
        """Whether the socket keeps up with the writes."""
        return self._stream.writable

    def write(self, *buffers: Buffer) -> None:
        """Send frames, in order; never blocks. A lost connection drops them."""
        self._stream.write(*buffers)

    def write_now(self, *buffers: Buffer) -> None:
        """`write`, passing them to the kernel at once if no frame is queued before."""
        self._stream.write_now(*buffers)

    async def flush(self) -> None:
        """Wait until the kernel has all written frames, or the connection is lost."""
        try:
            await self._stream.flush()
        except ConnectionLost:
            pass

    def close(self, reason: str) -> None:
        """Close the connection now, and notify its producers and consumers."""
        self._lose(reason)

    def next_request_id(self) -> int:
        """An id for a request whose response is not awaited."""
        return self._requests.next_id()

    async def request(
        self, make: Callable[[int], bytes], *, timeout_s: float, topic: str | None = None
    ) -> BaseCommand:
        """Send the frame that `make` returns for a request id, and wait for the response.

        Raises the BrokerError of an ERROR response, ConnectionFailedError, OperationTimeoutError,
        and InvalidArgumentError for what no frame can hold: a text that isn't Unicode, say.
        Once the broker makes a producer wait for exclusive access (PIP-68), there is no timeout.
        """
        request_id = -1
        answer: BaseCommand | None = None
        scope = trio.CancelScope(deadline=trio.current_time() + timeout_s)

        def send(given: int) -> None:
            nonlocal request_id
            request_id = given
            self._waiting[given] = scope
            self._stream.write(_made(make, given))

        try:
            with scope:
                answer = await self._requests.call(send, timeout_s=math.inf)
        except TooManyRequests as error:
            raise ConnectionFailedError(f"{self.name}: {error}", topic=topic) from error
        except GemingaError as error:
            # A lost connection rejects all with one error; each caller raises its own copy.
            raise type(error)(str(error), code=error.code, topic=topic) from error
        finally:
            self._waiting.pop(request_id, None)
        if answer is None:
            raise OperationTimeoutError(
                f"{self.name}: no answer within {timeout_s:g} s", topic=topic
            )
        return answer

    async def handshake(self, timeout_s: float, proxy_to_broker_url: str | None) -> None:
        """CONNECT and its response. Raises ConnectionFailedError, OperationTimeoutError,
        AuthenticationError, or the broker's error.
        """
        flags = FeatureFlags(
            supports_auth_refresh=True,
            supports_broker_entry_metadata=True,
            supports_partial_producer=True,
            supports_topic_watchers=True,
            supports_get_partitioned_metadata_without_auto_creation=True,
        )
        if proxy_to_broker_url is not None:
            self._goes_by_tls = None
        who = self._authentication
        with trio.move_on_after(timeout_s) as scope:
            try:
                data = None if who is None else await who.data()
            except GemingaError as error:
                self._lose(str(error))
                raise
            except FAILURES as error:  # of a plug-in; its text may contain secrets
                text = f"the authentication's data() raised {type(error).__name__}"
                self._lose(text)
                raise AuthenticationError(text) from error
            self._stream.write(
                connection_commands.connect(
                    CLIENT_VERSION,
                    auth_method_name=None if who is None else who.method_name,
                    auth_data=data,
                    feature_flags=flags,
                    proxy_to_broker_url=proxy_to_broker_url,
                )
            )
            await self._connected.wait()
        if scope.cancelled_caught:
            self._lose("no answer to CONNECT")
            raise OperationTimeoutError(f"{self.name}: no answer to CONNECT within {timeout_s:g} s")

    async def run(self) -> None:
        """Serve the connection until it is lost or closed."""
        try:
            async with trio.open_nursery() as nursery:
                for task in (self._stream.run_writer, self._keep_alive, self._answer_challenges):
                    nursery.start_soon(protected, task)
                await self._read()
                nursery.cancel_scope.cancel()
        finally:
            self._lose("closed")
            await self._stream.aclose()

    async def _read(self) -> None:
        reason = "closed by the broker"
        data = b""
        try:
            while data := await self._stream.receive():
                self.read_at_s = trio.current_time()
                self._take(data)
        except (ConnectionLost, RemoteProtocolError) as error:
            reason = str(error)
            if isinstance(error, FramingError) and other_protocol(bytes(data[:4])) is not None:
                self._connected.reject(WrongProtocolError(f"{self.name}: {reason}"))
        self._lose(reason)

    def _take(self, data: bytes) -> None:
        """Handle what was received. Raises RemoteProtocolError."""
        try:
            frames = self._reader.feed(data)
        except FramingError as error:
            for frame in error.frames:
                self._on_frame(frame)
            raise
        for frame in frames:
            self._on_frame(frame)

    async def _keep_alive(self) -> None:
        asked_s = -math.inf
        while True:
            due_s = trio.current_time() + self._keep_alive_interval_s
            await trio.sleep_until(due_s)
            # If this process was stopped, the broker's data may not be read yet.
            stood_still = trio.current_time() - due_s >= _STOOD_STILL_S
            if self.read_at_s < asked_s and not stood_still:
                self._lose(f"no data received for {self._keep_alive_interval_s} s")
                return
            asked_s = trio.current_time()
            self._stream.write(connection_commands.PING)

    async def _answer_challenges(self) -> None:
        """Answer the broker's authentication challenges (PIP-30); waiting ones are joined."""
        while True:
            await self._challenged.wait()
            who = self._authentication
            if who is None:
                self._lose("the broker requires authentication, but the client has none")
                return
            try:
                data = await who.renewed()
            except GemingaError as error:
                self._connected.reject(error)
                self._lose(str(error))
                return
            self._stream.write(
                connection_commands.auth_response(CLIENT_VERSION, who.method_name, data)
            )

    def _on_frame(self, frame: Frame) -> None:
        if isinstance(frame, MessageRun):
            consumer = self.consumers.get(frame.consumer_id)
            if consumer is not None:
                consumer.on_messages(frame)
        elif isinstance(frame, ReceiptRun):
            producer = self.producers.get(frame.producer_id)
            if producer is not None:
                producer.on_receipts(frame)
        else:
            self._on_other(frame.type, frame.command, frame.error)

    def _on_other(
        self, kind: int, command: BaseCommand, broken: RemoteProtocolError | None
    ) -> None:
        if kind == BROKEN:
            raise broken or RemoteProtocolError("command can't be understood")
        if kind == BaseCommand.PING:
            self._stream.write(connection_commands.PONG)
        elif kind == BaseCommand.CONNECTED:
            self._on_connected(command)
        elif kind == BaseCommand.ERROR:
            self._on_error(command)
        elif kind == BaseCommand.AUTH_CHALLENGE:
            self._challenged.set()
        elif kind == BaseCommand.PRODUCER_SUCCESS and not command.producer_success.producer_ready:
            scope = self._waiting.get(command.producer_success.request_id)
            if scope is not None:
                scope.deadline = math.inf
        elif kind == BaseCommand.SEND_ERROR:
            sink = self.producers.get(command.send_error.producer_id)
            if sink is not None:
                sink.on_send_error(command.send_error, error_name(command.send_error.error))
        elif kind == BaseCommand.WATCH_TOPIC_UPDATE:
            update = command.watchTopicUpdate
            watcher = self.watchers.get(update.watcher_id)
            if watcher is not None:
                watcher.on_topics_changed(update.new_topics, update.deleted_topics)
        elif kind in _FOR_CONSUMER or kind in _CLOSES:
            self._on_notice(kind, command)
        else:
            # A response has its request's id; a command without one is ignored.
            body = getattr(command, SUBMESSAGE.get(kind, ""), None)
            self._requests.resolve(getattr(body, "request_id", -1), command)

    def _on_notice(self, kind: int, command: BaseCommand) -> None:
        if kind == BaseCommand.CLOSE_PRODUCER:
            closed = command.close_producer
            producer = self.producers.pop(closed.producer_id, None)
            if producer is not None:
                producer.on_lost(self._assigned(closed))
        elif kind == BaseCommand.CLOSE_CONSUMER:
            gone = command.close_consumer
            consumer = self.consumers.pop(gone.consumer_id, None)
            if consumer is not None:
                consumer.on_lost(self._assigned(gone))
        elif kind == BaseCommand.ACTIVE_CONSUMER_CHANGE:
            change = command.active_consumer_change
            consumer = self.consumers.get(change.consumer_id)
            if consumer is not None:
                consumer.on_active_change(change.is_active)
        else:
            consumer = self.consumers.get(command.reachedEndOfTopic.consumer_id)
            if consumer is not None:
                consumer.on_end_of_topic()

    def _assigned(self, notice: CommandCloseProducer | CommandCloseConsumer) -> str | None:
        """URL of the topic's next broker (PIP-307); None behind a proxy."""
        if self._goes_by_tls is None:
            return None
        secure, plain = notice.assignedBrokerServiceUrlTls, notice.assignedBrokerServiceUrl
        return (secure if self._goes_by_tls else plain) or None

    def _on_connected(self, command: BaseCommand) -> None:
        connected = command.connected
        self.supports_topic_watchers = connected.feature_flags.supports_topic_watchers
        if connected.max_message_size:
            self._reader.max_message_size = connected.max_message_size
        self._connected.resolve(None)

    def _on_error(self, command: BaseCommand) -> None:
        text = command.error.message
        if self._authentication is None and command.error.error == ServerError.AuthenticationError:
            text += "; no credentials were given: see the client's option authentication"
        error = from_broker(error_name(command.error.error), text)
        told = self._requests.reject(command.error.request_id, error)
        if not told and not self._connected.is_done():
            # Before CONNECTED an ERROR is about the connection itself, regardless of its id.
            self._connected.reject(error)
            self._lose(str(error))

    def _lose(self, reason: str) -> None:
        if self._lost_reason is not None:
            return
        self._lost_reason = reason
        logger.debug("connection to %s lost: %s", self.name, reason)
        self._stream.abort(reason)
        error = ConnectionFailedError(f"{self.name}: {reason}")
        self._connected.reject(error)
        self._requests.fail_all(error)
        sinks: list[ProducerSink | ConsumerSink] = [
            *self.producers.values(),
            *self.consumers.values(),
        ]
        self.producers.clear()
        self.consumers.clear()
        for sink in sinks:
            sink.on_lost(None)
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers.values():
            watcher.on_watch_lost()


_FOR_CONSUMER = frozenset({BaseCommand.ACTIVE_CONSUMER_CHANGE, BaseCommand.REACHED_END_OF_TOPIC})
_CLOSES = frozenset({BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER})
