"""`geminga admin ns-isolation-policy` (Apache's CmdNamespaceIsolationPolicy)."""

from __future__ import annotations

from geminga._admin.families.clusters import IsolationPolicies
from geminga.cli.admin.declare import Command, Option, Values, listed, text


def _policy(values: Values) -> Values:
    failover = {"policy_type": values["failover_type"], "parameters": values["parameters"] or {}}
    data = {
        "namespaces": values["namespaces"],
        "primary": values["primary"],
        "secondary": values["secondary"] or [],
        "auto_failover_policy": failover,
    }
    if values["unload_scope"] is not None:
        data["unload_scope"] = values["unload_scope"]
    return {"cluster": values["cluster"], "policy": values["policy"], "data": data}


COMMANDS = (
    Command("list", "List the policies of a cluster.", IsolationPolicies.list, "cluster"),
    Command("get", "Show a policy.", IsolationPolicies.get, "cluster policy"),
    Command(
        "set", "Create or replace a policy.", IsolationPolicies.set, "cluster policy",
        (
            listed("--namespaces", "namespaces", "Regular expressions.", required=True),
            listed("--primary", "primary", "Regular expressions of brokers.", required=True),
            listed("--secondary", "secondary", "Brokers that take over."),
            text("--auto-failover-policy-type", "failover_type", "min_available.", required=True),
            Option("--auto-failover-policy-params", "parameters", "pairs", required=True,
                   help="min_limit=1,usage_threshold=80"),
            text("--unload-scope", "unload_scope", "all_matching, none or changed."),
        ),
        make=_policy,
    ),
    Command("delete", "Delete a policy.", IsolationPolicies.delete, "cluster policy"),
    Command("brokers", "List brokers with the policies that name them.",
            IsolationPolicies.brokers, "cluster"),
    Command("broker", "Show the policies that name a broker.", IsolationPolicies.broker, "cluster",
            (text("--broker", "broker", "The broker.", required=True),)),
)  # fmt: skip
