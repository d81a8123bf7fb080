"""A topic's backlog over REST: analysed, expired by position and for all subscriptions, trimmed
(spec OP-04; Apache's `PersistentTopicsBase`).
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.answers import Analysis
from geminga_broker.admin.topics.messages import require_log_of, require_single
from geminga_broker.admin.topics.subscriptions import (
    ResetCursorData,
    number_of,
    position_of_body,
    require_backlog,
    require_subscription,
    start_of,
)
from geminga_broker.service import BrokerService
from geminga_broker.subscription.backlog_scan import BacklogScan, scan_backlog
from geminga_broker.subscription.entry_filters import FilterContext
from geminga_protocol.ids import EARLIEST


def routes(service: BrokerService, domain: str) -> list[Route]:
    """All routes of the family for one domain."""

    async def analyse(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        subscription = rest.subscription_of(request)
        start = await start_of(request, EARLIEST)
        await require_single(
            service,
            name,
            "Analyze backlog on a partitioned topic is not allowed, please try do it on specific "
            "topic partition",
        )
        topic = await require_log_of(
            service, name, f"Subscription {subscription} not found for topic {name}", 404
        )
        require_subscription(topic, name, subscription)
        cursor = topic.subscriptions[subscription].cursor
        scan = await scan_backlog(
            topic.log,
            cursor,
            None if start == EARLIEST else start,
            topic.options.entry_filters,
            FilterContext(str(name), subscription),
            entries_max=service.config.clients.backlog_scan_entries_max,
            time_max_s=service.config.clients.backlog_scan_time_max_ms / 1000,
        )
        return rest.ok(_analysis(scan), Analysis)

    async def trim(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        topic = await require_log_of(service, name, "Trim on a non-persistent topic is not allowed")
        await topic.log.trim()
        return Response()

    one = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}"
    sub = one + "/subscription/{subscription}"
    return [
        rest.route("POST", sub + "/analyzeBacklog", analyse),
        rest.route("POST", one + "/trim", trim),
        rest.route(
            "POST", one + "/all_subscription/expireMessages/{seconds}", _expire_all(service, domain)
        ),
        rest.route("POST", sub + "/expireMessages", _expire_by_position(service, domain)),
    ]


def _analysis(scan: BacklogScan) -> Analysis:
    """Apache's `AnalyzeSubscriptionBacklogResult`."""
    found: Analysis = {
        "entries": scan.entries,
        "messages": scan.messages,
        "filterRejectedEntries": scan.filter_rejected_entries,
        "filterAcceptedEntries": scan.filter_accepted_entries,
        "filterRescheduledEntries": scan.filter_rescheduled_entries,
        "filterRejectedMessages": scan.filter_rejected_messages,
        "filterAcceptedMessages": scan.filter_accepted_messages,
        "filterRescheduledMessages": scan.filter_rescheduled_messages,
        "aborted": scan.aborted,
    }
    if scan.first is None or scan.last is None:
        return found
    return {**found, "firstMessageId": str(scan.first), "lastMessageId": str(scan.last)}


def _expire_all(service: BrokerService, domain: str) -> rest.Handler:
    async def expire_all(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        seconds = number_of(request, "seconds", 32)
        topic = await require_log_of(
            service,
            name,
            "Expire messages for all subscriptions on a non-persistent topic is not allowed",
        )
        errors: list[rest.RestError] = []
        for subscription in list(topic.subscriptions):
            try:
                require_backlog(topic, name, subscription)
            except rest.RestError as error:
                errors.append(error)  # the others are expired nevertheless
                continue
            await topic.expire(subscription, seconds)
        if errors:
            raise errors[0]
        return rest.no_content()

    return expire_all


def _expire_by_position(service: BrokerService, domain: str) -> rest.Handler:
    async def expire(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        subscription = rest.subscription_of(request)
        until = await rest.read_union(request, ResetCursorData, str)
        if until is None:
            raise rest.RestError(500, "A message id is missing")
        await require_single(
            service, name, "Expire message at position is not supported for partitioned-topic"
        )
        topic = await require_log_of(
            service, name, "A non-persistent topic keeps no messages that could expire", 500
        )
        require_subscription(topic, name, subscription)
        position = position_of_body(until)
        if position > topic.log.last_position:
            raise rest.RestError(
                409,
                f"Expire message by position not issued on topic {name} for subscription "
                f"{subscription} due to ongoing message expiration not finished or invalid message "
                "position provided.",
            )
        topic.subscriptions[subscription].expire(position)
        return rest.no_content()

    return expire
