"""Several brokers of one cluster, each on ports of its own: killed, paused, stopped, started again;
which of them owns a topic, and who has its clients.
"""

from __future__ import annotations

import http
import json
import os
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from compat_tests.apache.cluster import Cluster
from compat_tests.apache.relay import RelayThread, relays
from compat_tests.processes import ServerProcess

WAIT_S = 60.0
NOT_ACQUIRED = "Failed to acquire ownership"
IS_UNLOADED = "is being unloaded"
Json = dict[str, object]


def ask(
    web_url: str, method: str, path: str, body: object = None, *, as_text: bool = False
) -> object:
    """The answer of an admin call, of the broker to which we are sent on. Raises HTTPError."""
    data = None if body is None else json.dumps(body).encode()
    url = f"{web_url}{path}"
    for _ in range(5):
        request = urllib.request.Request(url, data=data, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                text = answer.read().decode()
                return text if as_text else json.loads(text or "null")
        except urllib.error.HTTPError as error:
            if error.code != 307:
                raise
            url = error.headers["Location"]
            error.close()
    raise AssertionError(f"sent from broker to broker: {url}")


@dataclass
class Fleet:
    """The brokers by number, as they were started last."""

    seats: Sequence[Cluster]
    settings: Mapping[str, str]
    servers: dict[int, ServerProcess] = field(default_factory=dict)
    keeper: KazooClient | None = None
    links: Sequence[RelayThread] = ()
    """What each broker reaches ZooKeeper through."""

    @property
    def url(self) -> str:
        """Of all of them: clients try one after the other."""
        hosts = ",".join(seat.url.removeprefix("pulsar://") for seat in self.seats)
        return f"pulsar://{hosts}"

    def start(self, *numbers: int, apache: bool = False) -> None:
        """Start these, and wait until they serve. Raises StartError."""
        for number in numbers:
            seat = self.seats[number]
            start = seat.start_apache if apache else seat.start_ours
            zookeeper = f"zk:127.0.0.1:{self.links[number].port}"
            self.servers[number] = start({"metadataStoreUrl": zookeeper, **self.settings})

    def kill(self, number: int) -> None:
        """kill -9."""
        self.servers.pop(number).kill()

    def stop(self, number: int) -> None:
        """As an operator does it."""
        server = self.servers.pop(number)
        assert server.stop() in (0, 130, 143), server.log_tail()

    def pause(self, number: int) -> None:
        """SIGSTOP."""
        os.kill(self.servers[number].pid, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """SIGCONT."""
        os.kill(self.servers[number].pid, signal.SIGCONT)

    def kill_all(self) -> None:
        """At the end."""
        for number in [*self.servers]:
            self.kill(number)

    # What they say.

    def rest(
        self, number: int, method: str, path: str, body: object = None, *, as_text: bool = False
    ) -> object:
        """See `ask`; of that broker."""
        return ask(self.servers[number].web_url, method, path, body, as_text=as_text)

    def owner(self, topic: str, asked: int | None = None) -> int:
        """Who serves a topic, by a lookup at that broker, or at the first one that runs."""
        number = next(iter(self.servers)) if asked is None else asked
        path = f"/lookup/v2/topic/{topic.replace('://', '/')}"
        answers: list[object] = []

        def answered() -> bool:
            try:
                answers.append(self.rest(number, "GET", path))
            except urllib.error.HTTPError as error:
                # Apache's broker, if the other one has just taken what nobody had, or the bundle is
                # under way to it: clients ask again.
                if not any(each in error.msg for each in (NOT_ACQUIRED, IS_UNLOADED)):
                    raise
                error.close()
            return bool(answers)

        self.until(answered)
        (found,) = answers
        assert isinstance(found, dict)
        urls = [seat.url for seat in self.seats]
        return urls.index(found["brokerUrl"])

    def bundles(self, topics: Sequence[str]) -> dict[str, int]:
        """The bundles of topics, each with its owner."""
        found = {}
        for topic in topics:
            path = f"/lookup/v2/topic/{topic.replace('://', '/')}/bundle"
            name = self.rest(next(iter(self.servers)), "GET", path, as_text=True)
            found[str(name)] = self.owner(topic)
        return found

    def unload(self, bundle: str, to: int, asked: int) -> None:
        """Move a bundle of public/default, by a call to that broker."""
        path = f"/admin/v2/namespaces/public/default/{bundle}/unload"
        query = urllib.parse.urlencode({"destinationBroker": self.seats[to].broker_id})
        self.rest(asked, "PUT", f"{path}?{query}")

    def owned(self, topics: Sequence[str]) -> dict[int, list[str]]:
        """The topics by their owner."""
        found: dict[int, list[str]] = {}
        for topic in topics:
            found.setdefault(self.owner(topic), []).append(topic)
        return found

    def consumers(self, topic: str, subscription: str = "s") -> int:
        """How many are connected to the topic's owner."""
        path = f"/admin/v2/{topic.replace('://', '/')}/stats"
        stats = self.rest(self.owner(topic), "GET", path)
        assert isinstance(stats, dict)
        return len(stats["subscriptions"].get(subscription, {"consumers": []})["consumers"])

    def all_wait(self, topics: Sequence[str]) -> bool:
        """Whether each topic has the one consumer that is alone on it. Who has no session with
        ZooKeeper yet, or too few bookies, answers 503 till then.
        """
        try:
            return all(self.consumers(topic) == 1 for topic in topics)
        except urllib.error.HTTPError as error:
            if error.code != http.HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            error.close()
            return False

    def registered(self) -> list[str]:
        """Ids of the brokers that have a session."""
        keeper = self.keeper
        assert keeper is not None
        # A test before may have let ZooKeeper stand still: our own session goes with it, too.
        return sorted(keeper.retry(keeper.get_children, "/loadbalance/brokers"))

    def record(self, path: str) -> Json:
        """A node of ZooKeeper, empty if there is none."""
        keeper = self.keeper
        assert keeper is not None
        try:
            value, _ = keeper.retry(keeper.get, path)
        except NoNodeError:
            return {}
        return dict(json.loads(value))

    def leader(self) -> int | None:
        """Who leads now."""
        found = self.record("/loadbalance/leader").get("brokerId")
        ids = [seat.broker_id for seat in self.seats]
        return ids.index(str(found)) if found in ids else None

    def until(self, condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        """While all brokers live."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "it does not come"
            for server in self.servers.values():
                assert server.process.poll() is None, server.log_tail()
            time.sleep(0.02)


@contextmanager
def fleet_of(cluster: Cluster, brokers: int, settings: Mapping[str, str]) -> Iterator[Fleet]:
    """Seats for so many brokers, none of them started; all are killed at the end."""
    keeper = KazooClient(cluster.zookeeper.address)
    keeper.start()
    try:
        with relays(cluster.zookeeper.port, brokers) as links:
            seats = [cluster.beside() for _ in range(brokers)]
            found = Fleet(seats, settings, keeper=keeper, links=links)
            try:
                yield found
            finally:
                found.kill_all()
    finally:
        keeper.stop()
        keeper.close()
