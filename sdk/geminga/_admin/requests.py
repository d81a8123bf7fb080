"""What the operations send: a request in pieces, and paths of names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, urlencode

from geminga.errors import InvalidArgumentError, InvalidTopicNameError

DOMAINS = ("persistent", "non-persistent")


class Request(NamedTuple):
    """`path` is encoded; `query` has pairs of texts that are not. `body` is JSON unless
    `content_type` says something else.
    """

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    content_type: str = "application/json"

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


def checked_text(value: object, name: str) -> str:
    """The value. Raises InvalidArgumentError unless it is a text: a path would take anything's, and
    5 make a topic "5".
    """
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name} must be a text, not {value!r}")
    return value


def segment(value: object, name: str) -> str:
    """One part of a path. Raises InvalidArgumentError for an empty one."""
    text = str(value)
    if not text or text in (".", ".."):
        raise InvalidArgumentError(f"{name} must not be {text!r}")
    return quote(text, safe="")


def namespace_path(namespace: object) -> str:
    """`tenant/namespace`, encoded. Raises InvalidArgumentError."""
    text = checked_text(namespace, "namespace")
    parts = text.split("/")
    if len(parts) != 2 or not all(parts):
        raise InvalidArgumentError(f"namespace must be tenant/namespace, not {text!r}")
    return "/".join(segment(part, "namespace") for part in parts)


def topic_parts(topic: object) -> tuple[str, str, str]:
    """Domain, `tenant/namespace` and local name of a topic's name in any of its forms. Raises
    InvalidTopicNameError, and InvalidArgumentError for what is no text.
    """
    text = checked_text(topic, "topic")
    domain, separator, rest = text.partition("://")
    if not separator:
        domain, rest = "persistent", text
        if "/" not in text:
            rest = f"public/default/{text}"
    parts = rest.split("/")
    domain = domain.lower()
    if domain not in DOMAINS or len(parts) != 3 or not all(parts):
        raise InvalidTopicNameError(
            f"topic must be TOPIC, TENANT/NAMESPACE/TOPIC or DOMAIN://TENANT/NAMESPACE/TOPIC, "
            f"not {text!r}"
        )
    return domain, f"{parts[0]}/{parts[1]}", parts[2]


def topic_path(topic: object) -> str:
    """`domain/tenant/namespace/topic`, encoded. Raises InvalidTopicNameError."""
    domain, namespace, local = topic_parts(topic)
    return f"{domain}/{namespace_path(namespace)}/{segment(local, 'topic')}"


def schema_path(topic: object) -> str:
    """`tenant/namespace/topic`, encoded: schemas have no domain. Raises InvalidTopicNameError."""
    return topic_path(topic).partition("/")[2]


def subscription_segment(value: object) -> str:
    """A subscription's name in a path, encoded twice: brokers decode these names once more after
    the path's own encoding (PersistentTopics.decode).
    """
    return quote(segment(value, "subscription"), safe="")
