"""Apache's Java admin client, each of its methods: what it gets of Apache's broker was recorded."""

from __future__ import annotations

import json

import pytest

from compat_tests.clients import java_admin
from compat_tests.processes import ServerProcess

pytestmark = pytest.mark.java

OTHERWISE = {
    "clusters.updateClusterMigration": "clients aren't sent to other clusters: 501",
    "clusters.getClusterMigration": "as it wasn't set",
    "namespaces.updateMigrationState": "clients aren't sent to other clusters: 501",
    "brokerStats.getMBeans": "Apache's own fails on Java 17: 400",
    "namespaces.getBacklogQuotaMap": "there a GET of a topic's has changed the namespace's",
    "namespaces.getPolicies": "the same",
    "namespaces.unload": "Apache's fails at times, with a stack trace",
    "namespaces.clearNamespaceBacklogForSubscription": "500 without a stack trace",
    "namespaces.clearNamespaceBundleBacklogForSubscription": "500 without a stack trace",
}
"""Methods that have another outcome on our server, with the reason."""


def test_every_method_of_the_java_admin_client(standalone: ServerProcess) -> None:
    recorded = json.loads(java_admin.RECORD.read_text())
    found = java_admin.outcomes(standalone.web_url, standalone.service_url)
    assert [each[0] for each in found] == [each[0] for each in recorded]
    wrong, other = [], set()
    for (method, *ours), (_, *theirs) in zip(found, recorded, strict=True):
        name = method.partition("(")[0]
        if ours == theirs:
            continue
        if name in OTHERWISE:
            other.add(name)
        else:
            wrong.append(f"{method}: {ours}, Apache: {theirs}")
    assert not wrong, "\n".join(wrong)
    assert other == set(OTHERWISE), "some are as Apache's by now"


def test_enough_methods_succeed() -> None:
    recorded = json.loads(java_admin.RECORD.read_text())
    assert len({method for method, how, _ in recorded if how == "gave"}) > 500
