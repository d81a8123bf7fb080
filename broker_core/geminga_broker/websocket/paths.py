"""What a WebSocket's path names (Apache's `AbstractWebSocketHandler.extractTopicName`). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from geminga_broker.errors import BrokerError
from geminga_broker.limits import check_subscription, check_topic
from geminga_broker.websocket.errors import BadParameter, Refused
from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.topic_name import TopicName

DOMAINS = ("persistent", "non-persistent")
KINDS = ("producer", "consumer", "reader")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One WebSocket's purpose."""

    kind: str
    topic: TopicName
    subscription: str = ""


def parse_path(path: str) -> Endpoint:
    """`/ws/v2/{kind}/{domain}/{tenant}/{namespace}/{topic}[/{subscription}]`, as it was sent; a
    topic's name may have slashes, encoded or not.

    Raises Refused: 404 for what is no path of this API, else 400.
    """
    parts = path.split("/")
    if parts[:3] != ["", "ws", "v2"] or len(parts) < 4 or parts[3] not in KINDS:
        raise Refused(404, "Not found")
    kind, rest = parts[3], parts[4:]
    subscription = ""
    if kind == "consumer":
        if len(rest) != 5:
            raise BadParameter("Invalid topic name format")
        subscription = unquote(rest.pop())
        if not subscription:
            raise BadParameter("Empty subscription name")
    if len(rest) < 4 or rest[0] not in DOMAINS:
        raise BadParameter("Invalid topic name format")
    domain, tenant, namespace = rest[:3]
    local = unquote("/".join(part for part in rest[3:] if part))
    try:
        name = f"{domain}://{unquote(tenant)}/{unquote(namespace)}/{local}"
        check_topic(name)
        check_subscription(subscription)
        topic = TopicName.parse(name)
    except (BrokerError, LocalProtocolError) as error:
        raise BadParameter(f"Invalid topic name: {error}") from None
    return Endpoint(kind, topic, subscription)
