"""What each method of Apache's Java admin client gives, or throws (`Administrator.java`).

``java_admin.json`` beside this has what it got of Apache's broker, written by
``python -m compat_tests.clients.java_admin WEB_URL SERVICE_URL`` against Apache Pulsar 4.0.7.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from compat_tests.apache.jars import run_java

RECORD = Path(__file__).with_name("java_admin.json")

ONE_SERVERS = frozenset(
    {
        # Addresses, places, times, measurements, and what other tests have made.
        *("bookies.getBookies", "brokers.getActiveBrokers", "brokers.getAllDynamicConfigurations"),
        *("brokers.getDynamicConfigurationNames", "brokers.getInternalConfigurationData"),
        "brokers.getLeaderBroker",
        *("brokers.getOwnedNamespaces", "brokers.getVersion"),
        *("brokerStats.getAllocatorStats", "brokerStats.getLoadReport", "brokerStats.getMBeans"),
        *("brokerStats.getMetrics", "brokerStats.getPendingBookieOpsStats"),
        *("brokerStats.getTopics", "clusters.getCluster", "clusters.getClusters"),
        *("resourcegroups.getResourceGroups", "schemas.getSchemaInfoWithVersion"),
        *("schemas.getSchemaMetadata", "tenants.getTenants", "topics.analyzeSubscriptionBacklog"),
        *("topics.getInternalInfo", "topics.getInternalStats", "topics.getLastMessageId"),
        "topics.getMessageIdByTimestamp",
        *("topics.getStats", "topics.terminateTopic", "bookies.getBookiesRackInfo"),
    }
)
"""Methods of whose results only the members' names are compared."""


def outcomes(web_url: str, service_url: str) -> list[list[Any]]:
    """Of each call, in order: the method, "gave" or the exception with its status, and what it
    gave or the reason.
    """
    printed = run_java("Administrator", [web_url, service_url], heap_mb=256)
    lines = [line for line in printed.splitlines() if line.startswith('{"method"')]
    return [_outcome(json.loads(line)) for line in lines]


def _outcome(told: dict[str, Any]) -> list[Any]:
    method = told["method"]
    if "gave" not in told:
        thrown = f"{told['threw']} {told.get('status', '')}".strip()
        return [method, thrown, _reason(told["reason"])]
    found = told["gave"]
    name = method.partition("(")[0]
    if name in OWN_SETTINGS:
        found = type(found).__name__
    elif name in ONE_SERVERS:
        found = _names(found)
    return [method, "gave", found]


def _reason(text: str) -> str:
    """Without what Jetty and Jackson say, and without stack traces."""
    return "" if text.startswith(("HTTP ", "\n")) or "\n" in text else text


OWN_SETTINGS = ("brokers.getRuntimeConfigurations",)
"""Of whose results only the kind is compared."""


def _names(value: Any) -> Any:
    """The names of an object's members; of others their kind."""
    if isinstance(value, dict):
        return sorted(value)
    return type(value).__name__


if __name__ == "__main__":
    found = outcomes(*sys.argv[1:])
    lines = ",\n".join(json.dumps(each, sort_keys=True) for each in found)
    RECORD.write_text(f"[\n{lines}\n]\n")
    print(f"{len(found)} calls")
