"""The looks of `geminga doctor` at a server: each makes calls and yields lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from geminga._admin.declared import declaration_of
from geminga._admin.errors import (
    AdminError,
    NotAuthorizedError,
    NotFoundError,
    RequestTimeoutError,
    ServerError,
)
from geminga._admin.families.brokers import Bookies, Brokers, BrokerStats
from geminga._admin.families.clusters import Clusters
from geminga._admin.families.subscriptions import Subscriptions
from geminga.cli._credentials import OF_THE_CLIENT
from geminga.cli.admin.calls import answered
from geminga.cli.doctor.report import (
    FAIL,
    OK,
    TEXT_MAX,
    WARN,
    Backlog,
    Line,
    backlogs,
    clock,
    line_of,
    members,
    served_lately,
    space,
    summary,
    whole,
)
from geminga.errors import GemingaError, InvalidArgumentError, InvalidServiceUrlError
from geminga_runtime.host_port import bracketed

if TYPE_CHECKING:
    from geminga.cli._access import Access
    from geminga.cli.admin.calls import Calls

BLOCKED_MAX = 20
"""Subscriptions that are explained, of all topics: those with the largest backlogs."""
SUBSCRIPTIONS_MAX = 200
"""Subscriptions of one topic that are explained."""

INTENDED = ("NO_CONSUMERS", "DELAYED", "DISPATCH_RATE", "FAILOVER_DELAY")
"""Causes that may be as somebody wants it: no fault of a server."""

RIGHTS = "Give credentials of a super-user to see this."


def whole_server(calls: Calls) -> Iterator[Line]:
    """Everything but the broker's port and single topics. Ends early if nobody answers."""
    reached = False
    for line in web(calls):
        reached |= line.level == OK and line.check == "web"
        yield line
    if reached:
        for look in (_health, _brokers, _bookies):
            yield from guarded(look, calls)


def web(calls: Calls) -> Iterator[Line]:
    """The web service: reachable, its version and clock. Raises InvalidArgumentError,
    InvalidServiceUrlError.
    """
    request = declaration_of(Brokers.version).request((), {})
    began_s, began = time.time(), time.monotonic()
    try:
        answer = calls.ask(request)
    except (InvalidArgumentError, InvalidServiceUrlError):
        raise
    except NotAuthorizedError as error:
        yield Line(
            FAIL,
            "web",
            f"The web service refuses the credentials, or wants some: {error}.",
            "Give --auth-plugin and --auth-params of a role that may look.",
        )
        return
    except GemingaError as error:
        yield Line(
            FAIL,
            "web",
            f"The web service can't be asked: {error}.",
            "Check --admin-url and --auth-params, and that the server runs.",
        )
        return
    took_s = time.monotonic() - began
    yield Line(OK, "web", f"The web service answers in {took_s * 1000:.0f} ms.")
    found = answer.body[:TEXT_MAX].decode("utf-8", "replace").strip().strip('"')
    ours = version("geminga")
    yield Line(OK, "version", f"The server speaks Pulsar {found}; this is geminga {ours}.")
    yield clock(answer.headers.get("date"), began_s + took_s / 2)


def guarded(look: Callable[[Calls], Iterator[Line]], calls: Calls) -> Iterator[Line]:
    """The look's lines; an error is one, too."""
    name = look.__name__.strip("_")
    try:
        yield from look(calls)
    except NotAuthorizedError:
        yield Line(WARN, name, f"These credentials may not look at {name}.", RIGHTS)
    except NotFoundError:
        yield Line(WARN, name, f"The server has no such answer ({name}): it may be an older one.")
    except (ServerError, RequestTimeoutError) as error:
        yield Line(
            FAIL,
            name,
            f"Looking at {name} failed: {error}.",
            "Look in the broker's log, and at the metadata store.",
        )
    except GemingaError as error:
        yield Line(FAIL, name, f"Looking at {name} failed: {error}.")


def _health(calls: Calls) -> Iterator[Line]:
    began = time.monotonic()
    try:
        calls.call(Brokers.healthcheck)
    except NotAuthorizedError:
        raise
    except AdminError as error:
        yield Line(
            FAIL,
            "health",
            f"The broker could not publish a message and read it again: {error}.",
            "Look in its log, at the bookies and at the metadata store.",
        )
        return
    took_ms = (time.monotonic() - began) * 1000
    yield Line(
        OK, "health", f"The broker published a message and read it again in {took_ms:.0f} ms."
    )


def _brokers(calls: Calls) -> Iterator[Line]:
    names = calls.call(Brokers.list)
    found = [str(each) for each in names] if isinstance(names, list) else []
    leader = calls.call(Brokers.leader)
    leads = leader.get("brokerId") or leader.get("serviceUrl") if isinstance(leader, dict) else None
    count = f"{len(found)} broker is" if len(found) == 1 else f"{len(found)} brokers are"
    if not found:
        yield Line(
            FAIL,
            "brokers",
            "No broker is active: the one that answers is stopping, or has lost its registration.",
            "Start it again, and look in its log.",
        )
    elif leads is None:
        yield Line(FAIL, "brokers", f"{count} active, and none of them leads.")
    else:
        yield Line(OK, "brokers", f"{count} active; {leads} is the leader.")


def _bookies(calls: Calls) -> Iterator[Line]:
    for bookie, found in _spaces(calls):
        if found is None:
            yield space(bookie, None, None)
        else:
            read_only = found.get("readOnly")
            yield space(
                bookie,
                whole(found, "freeBytes"),
                whole(found, "totalBytes"),
                read_only if isinstance(read_only, str) else "",
            )


def _spaces(calls: Calls) -> list[tuple[str, dict[str, object] | None]]:
    answer = calls.call(Bookies.space)
    if not isinstance(answer, dict):
        return []
    return [(str(name), each if isinstance(each, dict) else None) for name, each in answer.items()]


def all_topics(calls: Calls) -> Iterator[Line]:
    """The backlogs of the loaded topics of the broker that answers, and why nothing is sent."""
    return guarded(_topics, calls)


def _topics(calls: Calls) -> Iterator[Line]:
    stats = calls.call(BrokerStats.topics)
    found = backlogs(stats)
    topics = sum(
        len(names)
        for _, bundles in members(stats)
        for _, domains in members(bundles)
        for _, names in members(domains)
    )
    yield summary(found, topics)
    still = [each for each in found if each.still]
    if len(still) < len(found):
        yield served_lately(len(found) - len(still))
    for each in still[:BLOCKED_MAX]:
        for line in _explained(calls, each):
            # Who names the topic is told what its subscription needs.
            is_intended = line.check in INTENDED and line.level == FAIL
            yield line._replace(level=WARN) if is_intended else line
    if len(still) > BLOCKED_MAX:
        left = len(still) - BLOCKED_MAX
        text = f"{left} more subscriptions have a backlog, and get nothing."
        yield Line(WARN, "blocked", text, "Name a topic to see why.")


def _explained(calls: Calls, backlog: Backlog) -> Iterator[Line]:
    try:
        yield from reasons(calls, backlog.topic, backlog.subscription)
    except RequestTimeoutError:
        raise  # the next one would have to be waited for as long
    except GemingaError as error:
        what = f"{backlog.subscription} on {backlog.topic}"
        text = f"Why {what} gets nothing can't be asked: {error}."
        yield Line(WARN, "blocked", text, "", backlog.topic, backlog.subscription)


def reasons(calls: Calls, topic: str, subscription: str) -> Iterator[Line]:
    """Why a subscription gets nothing. Raises AdminError."""
    found = calls.call(Subscriptions.why, topic=topic, subscription=subscription)
    for each in found if isinstance(found, list) else []:
        if isinstance(each, dict):
            line = line_of(each, topic, subscription)
            yield line._replace(sentence=f"{subscription} on {line.topic}: {line.sentence}")


def one_topic(calls: Calls, topic: str, subscription: str | None) -> Iterator[Line]:
    """One topic's subscriptions, or one of them."""

    def topic_(calls: Calls) -> Iterator[Line]:
        listed = calls.call(Subscriptions.list, topic=topic)
        names = [str(each) for each in listed] if isinstance(listed, list) else []
        if subscription is not None:
            if subscription not in names:
                known = ", ".join(sorted(names)[:5]) or "none"
                text = f"{topic} has no subscription {subscription}; it has: {known}."
                advice = "Create it, or let a consumer subscribe."
                yield Line(FAIL, "topic", text, advice, topic, subscription)
                return
            names = [subscription]
        elif not names:
            text = f"{topic} has no subscriptions: its messages are not kept."
            yield Line(WARN, "topic", text, "", topic)
        for name in names[:SUBSCRIPTIONS_MAX]:
            yield from reasons(calls, topic, name)
        if len(names) > SUBSCRIPTIONS_MAX:
            left = len(names) - SUBSCRIPTIONS_MAX
            text = f"{left} more subscriptions were not looked at."
            yield Line(WARN, "topic", text, "Use -s.", topic)

    try:
        yield from topic_(calls)
    except NotFoundError as error:
        advice = "Check its name: `geminga admin topics list` shows those of a namespace."
        yield Line(FAIL, "topic", f"{topic}: {error}.", advice, topic)
    except GemingaError as error:
        yield Line(FAIL, "topic", f"Looking at {topic} failed: {error}.", "", topic)


_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def service_url_of(calls: Calls | None, admin_url: str, otherwise: str = "") -> str:
    """The brokers' URL as a cluster's record has it; without `calls`, or such a record,
    `otherwise`, or one with the usual port. Only one at the host that is asked already, and with
    TLS if that has it: it gets the same credentials.
    """
    asked = urlsplit(admin_url)
    host = asked.hostname or "localhost"
    is_tls = asked.scheme == "https"
    hosts = _LOOPBACK if host in _LOOPBACK else (host,)
    member = "brokerServiceUrlTls" if is_tls else "brokerServiceUrl"
    if calls is not None:
        for record in _clusters(calls):
            found = record.get(member) if isinstance(record, dict) else None
            try:
                if isinstance(found, str) and urlsplit(found).hostname in hosts:
                    return found
            except ValueError:
                continue
    if otherwise:
        return otherwise
    place = bracketed(host)
    return f"pulsar+ssl://{place}:6651" if is_tls else f"pulsar://{place}:6650"


def _clusters(calls: Calls) -> Iterator[object]:
    """The records of clusters, as far as they are told."""
    try:
        names = calls.call(Clusters.list)
        for cluster in names if isinstance(names, list) else []:
            yield answered(
                calls.ask(declaration_of(Clusters.get).request((), {"cluster": cluster}))
            )
    except (GemingaError, ValueError):
        pass


async def port(access: Access, topic: str, timeout_s: float) -> Line:
    """The broker's own port: an answered lookup shows that it speaks, whatever it answers."""
    import trio

    from geminga.errors import AuthenticationError, BrokerError

    began = trio.current_time()
    try:
        with trio.fail_after(timeout_s):
            async with access.connect(operation_timeout_s=timeout_s) as client:
                # Only now: until here it was the client that was loaded.
                began = trio.current_time()
                await client.list_partitions(topic, auto_create=False)
    except AuthenticationError as error:
        return Line(
            FAIL,
            "port",
            f"The broker's port {access.url} refuses the credentials, or wants some: "
            f"{str(error.args[0]).removesuffix(f': {OF_THE_CLIENT}')}.",
            "Give --auth-plugin and --auth-params.",
        )
    except BrokerError:
        pass
    except (GemingaError, trio.TooSlowError) as error:
        # Without the topic, which the user may not have named.
        text = str(error.args[0]) if error.args else f"no answer within {timeout_s:g} s"
        return Line(
            FAIL,
            "port",
            f"The broker's port {access.url} can't be used: {text}.",
            "Check --service-url, its credentials, and the advertised addresses.",
        )
    took_ms = (trio.current_time() - began) * 1000
    return Line(OK, "port", f"The broker's port {access.url} answers in {took_ms:.0f} ms.")
