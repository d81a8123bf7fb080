"""The clusters and topics that a client is for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import geminga.blocking
import geminga.failover
from geminga.errors import InvalidTopicNameError
from geminga.pulsar._service import AutoClusterFailover, ServiceInfo, ServiceInfoProvider
from geminga.pulsar.exceptions import OperationNotSupported
from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.topic_name import TopicName

Changes = Mapping[str, Any]


def clusters_of(
    where: object, given: Mapping[str, Any]
) -> tuple[list[ServiceInfo], Changes, geminga.failover.AutoClusterFailover | None]:
    """The clusters, the primary first, with what it changes of a client's arguments, and the policy
    of failover. Raises ValueError, OperationNotSupported.
    """
    if isinstance(where, str):
        info = ServiceInfo(where, None, given["tls_trust_certs_file_path"])
        return [info], {}, None
    if not isinstance(where, AutoClusterFailover | ServiceInfoProvider):
        raise ValueError("service_url must be a text or an AutoClusterFailover")
    for name in ("authentication", "tls_trust_certs_file_path"):
        if given[name] is not None:
            raise ValueError(f"{name} must be given with each ServiceInfo, not with the client")
    if isinstance(where, ServiceInfoProvider):
        raise OperationNotSupported(
            "a ServiceInfoProvider is not supported: use an AutoClusterFailover, or make a new "
            "Client when the service changes"
        )
    first = where.primary
    changes = {
        "authentication": first._authentication,
        "tls_trust_certs_file_path": first.tls_trust_certs_file_path,
    }
    return [first, *where.secondary], changes, where._policy(given)


def current_url(client: geminga.blocking.Client) -> str:
    """The service URL in use."""
    return client._session.client._core.lookup.service_address.url


def name_of(topic: str | list[str] | re.Pattern[str]) -> str:
    """What `topic` of a consumer tells. Raises InvalidTopicNameError."""
    if isinstance(topic, re.Pattern):
        return topic.pattern
    names = [topic] if isinstance(topic, str) else topic
    try:
        return ",".join(str(TopicName.parse(each)) for each in names)
    except LocalProtocolError as error:
        raise InvalidTopicNameError(str(error)) from error
