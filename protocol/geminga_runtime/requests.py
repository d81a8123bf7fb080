"""Pending requests of one connection, by request id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import trio

from geminga_runtime.errors import RequestTimeout, TooManyRequests
from geminga_runtime.waiters import Promise, own_copy

T = TypeVar("T")

REQUESTS_MAX = 50_000


class RequestTable(Generic[T]):
    """Hands out ids, and passes responses to the callers. After `fail_all` every call fails."""

    def __init__(self, *, requests_max: int = REQUESTS_MAX, first_id: int = 0) -> None:
        self._requests_max = requests_max
        self._next_id = first_id
        self._pending: dict[int, Promise[T]] = {}
        self._failed: BaseException | None = None

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._pending

    def __repr__(self) -> str:
        return f"<RequestTable {len(self._pending)} pending>"

    def next_id(self) -> int:
        """A new id, also for requests without a waiting caller."""
        request_id = self._next_id
        self._next_id += 1
        return request_id

    async def call(
        self,
        send: Callable[[int], object],
        *,
        timeout_s: float,
        request_id: int | None = None,
    ) -> T:
        """Send a request and wait for its response.

        `send` gets the id and writes the frame. `request_id` is for a request that already has an
        id, which must not be pending. Raises the error given to `reject` or `fail_all`,
        RequestTimeout, or, without sending, TooManyRequests. A response that comes after the
        timeout, or after the caller was cancelled, is dropped.
        """
        if self._failed is not None:
            await trio.lowlevel.checkpoint()
            raise own_copy(self._failed)
        if len(self._pending) >= self._requests_max:
            await trio.lowlevel.checkpoint()
            raise TooManyRequests(f"{self._requests_max} requests wait for their answers already")
        if request_id is None:
            request_id = self.next_id()
        assert request_id not in self._pending, f"request {request_id} waits already"
        promise: Promise[T] = Promise()
        self._pending[request_id] = promise
        try:
            send(request_id)
            with trio.move_on_after(timeout_s):
                return await promise.wait()
        finally:
            # After a response, the id may belong to a new request.
            if self._pending.get(request_id) is promise:
                del self._pending[request_id]
        raise RequestTimeout(f"no answer to request {request_id} in {timeout_s:g} s")

    def resolve(self, request_id: int, answer: T) -> bool:
        """Pass a response to its caller; False if no caller waits for it."""
        promise = self._pending.pop(request_id, None)
        if promise is not None:
            promise.resolve(answer)
        return promise is not None

    def reject(self, request_id: int, error: BaseException) -> bool:
        """Raise an error in the caller; False if no caller waits."""
        promise = self._pending.pop(request_id, None)
        if promise is not None:
            promise.reject(error)
        return promise is not None

    def fail_all(self, error: BaseException) -> None:
        """The connection is lost: raise `error` in all pending and later calls. Call it once."""
        if self._failed is None:
            self._failed = error
            pending, self._pending = self._pending, {}
            for promise in pending.values():
                promise.reject(error)
