"""What must hold once faults have stopped and everything has drained."""

from __future__ import annotations

import trio

from geminga import Client, ConsumerType
from geminga_broker.log.api import LogError
from geminga_broker.service import BrokerService
from geminga_broker.subscription._tests.audit import check_consumer, check_subscription
from geminga_broker.subscription.subscription import Subscription
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.message_id import EARLIEST_ID
from geminga_protocol.topic_name import TopicName

from .books import Books, Place, content_of, place_of
from .cluster import Cluster
from .consumers import Taker
from .plan import SubscriptionPlan, TopicPlan

_OF_THE_CLIENT = ("Connection.run", "Intervals._run")


def parts_of(topic: TopicPlan) -> list[str]:
    """Full names of its partitions, or its own."""
    if not topic.partitions:
        return [topic.name]
    return [str(TopicName.parse(topic.name).partition(n)) for n in range(topic.partitions)]


async def backlog(cluster: Cluster, plan: SubscriptionPlan) -> int | str:
    """Entries that the subscription has not acknowledged, or why that isn't known."""
    total = 0
    for name in parts_of(plan.topic):
        try:
            topic = await cluster.service.topics.get(TopicName.parse(name), create=False)
        except LogError as error:  # a full disk isn't seen to have room again at once
            return f"{name}: {error!r}"
        total += topic.subscriptions[plan.name].backlog_entries()
    return total


def check_permits(service: BrokerService, takers: list[Taker], books: Books) -> None:
    """Nothing is under way: broker and SDK agree on what may still be sent."""
    for topic in service.topics.loaded.values():
        for subscription in topic.subscriptions.values():
            if isinstance(subscription, Subscription):
                audited(lambda each=subscription: check_subscription(each), books, subscription)
    for taker in takers:
        consumer = taker.consumer
        for part in consumer._parts.each if consumer is not None else ():
            topic = service.topics.loaded.get(part.topic)
            known = topic.subscriptions[taker.subscription.name].consumers if topic else ()
            found = [each for each in known if each.name == taker.plan.label]
            if not part.is_connected and taker.subscription.kind is ConsumerType.EXCLUSIVE:
                continue  # another consumer has the subscription
            permits = part.flow.permits
            if part.inbox.holds(part):
                books.violate(f"{taker.plan.label} holds messages though all was acknowledged")
            if len(found) != 1:
                books.violate(f"{taker.plan.label} is {len(found)} times at {part.topic}")
                continue
            there = found[0]
            audited(lambda each=there: check_consumer(each), books, there)
            if there.permits + there.held != permits.outstanding:
                books.violate(
                    f"{taker.plan.label} of {part.topic}: the broker has {there.permits} permits"
                    f" and holds {there.held}, the client counts {permits.outstanding}"
                )
            if permits.queue_size and permits.outstanding + permits.to_give != permits.queue_size:
                books.violate(
                    f"{taker.plan.label}: {permits.outstanding} permits given and"
                    f" {permits.to_give} to give of {permits.queue_size}"
                )


def audited(check: object, books: Books, what: object) -> None:
    """Run one of the broker's own checks."""
    assert callable(check)
    try:
        check()
    except AssertionError as error:
        books.violate(f"audit of {what}: {error or 'failed'}")


def _function(task: trio.lowlevel.Task) -> str:
    """What a task of the client's runs, beneath what protects it."""
    frame = task.coro.cr_frame
    function = None if frame is None else frame.f_locals.get("function")
    return getattr(function, "__qualname__", task.name)


def check_clients(clients: list[Client], books: Books) -> None:
    """Producers and consumers are closed: nothing of them is left."""
    for client in clients:
        core = client._core
        if core.memory.used_bytes:
            books.violate(f"{core.memory.used_bytes} bytes of messages are never released")
        if core.open:
            books.violate(f"still open: {list(core.open)}")
        running = core.nursery._nursery.child_tasks
        left = [each for each in map(_function, running) if each not in _OF_THE_CLIENT]
        if left:
            books.violate(f"tasks are left in a client: {left}")
        for connection in core.pool.connections:
            if connection.producers or connection.consumers or connection._waiting:
                books.violate(f"{connection} still knows producers, consumers or requests")


def check_service(service: BrokerService, books: Books) -> None:
    """Clients are gone: nothing of them is left in the broker."""
    if service.connections.sessions:
        books.violate(f"sessions are left: {list(service.connections.sessions)}")
    if service.connections.publish_bytes:
        books.violate(f"{service.connections.publish_bytes} published bytes are counted for ever")
    for name, topic in service.topics.loaded.items():
        if topic.producers:
            books.violate(f"{name} has producers though all clients are gone")
        for subscription in topic.subscriptions.values():
            if subscription.consumers:
                books.violate(f"{name} {subscription} has consumers though all clients are gone")
            if isinstance(subscription, Subscription) and subscription.pump._running:
                books.violate(f"{name} {subscription} is still dispatched")


async def check_backlogs(cluster: Cluster, books: Books) -> None:
    """After an orderly restart nothing comes again: all acknowledgements were stored."""
    for plan in books.plan.subscriptions:
        left = await backlog(cluster, plan)
        if left:
            books.violate(f"{plan.name}: {left} entries come again after an orderly restart")


async def read_log(client: Client, topic: TopicPlan) -> list[tuple[bytes, Place, str]]:
    """All that is stored, as a reader gets it."""
    found: list[tuple[bytes, Place, str]] = []
    reader = await client.create_reader(topic.name, EARLIEST_ID)
    with trio.fail_after(100):
        while await reader.has_message_available():
            message = await reader.read_next(30)
            place = place_of(message.message_id)
            found.append((content_of(message.data), place, message.topic_name))
    await reader.aclose()
    return found


async def check_logs(client: Client, cluster: Cluster, books: Books) -> None:
    """Look at what is stored."""
    if not books.plan.retains:
        return
    for topic in books.plan.topics:
        books.check_log(topic.name, await read_log(client, topic))
        for name in parts_of(topic):
            assert isinstance(cluster.service.topics.loaded[name], PersistentTopic)
