"""What a REST call is answered without the right that it needs, recorded from Apache Pulsar 4.0."""

from __future__ import annotations

from geminga_broker.authz.needs import Need, Place, Scope


def refusal(need: Need, place: Place, role: str | None, original: str | None) -> tuple[int, str]:
    """Status and reason, with Apache's text."""
    who = f"originalPrincipal [{original or 'null'}] and clientAppId [{role or 'null'}]"
    operation = f"about operation [{need.operation}]"
    if need.scope is Scope.CLUSTER:
        of_policy = "Policy" if need.policy else ""
        kind = f"validateBothSuperuserAndCluster{of_policy}Operation"
        return 401, f"Unauthorized to {kind} for {who} {operation} on cluster [{place.name}]"
    if need.scope is Scope.BROKER:
        kind = "validateBothSuperuserAndBrokerOperation"
        return 401, f"Unauthorized to {kind} for {who} {operation} on broker [{place.name}]"
    if need.scope is Scope.TENANT:
        return 401, _tenant_refusal(need, place, who)
    if need.scope is Scope.NAMESPACE and need.operation == "PACKAGES":
        who = f"Role {role or 'null'}"
        return 401, f"{who} has not the 'package' permission to do the packages operations."
    if need.scope is Scope.NAMESPACE:
        return 403, (
            f"Unauthorized to validateNamespaceOperation for operation [{need.operation}] on "
            f"namespace [{place.namespace}]"
        )
    if need.scope is Scope.NAMESPACE_POLICY:
        return 403, (
            f"Unauthorized to validateNamespacePolicyOperation for operation [{need.operation}] "
            f"on namespace [{place.namespace}] on policy [{need.policy}]"
        )
    if need.scope is Scope.TOPIC:
        return 401, (
            f"Unauthorized to validateTopicOperation for operation [{need.operation}] on topic "
            f"[{place.topic}]"
        )
    if need.scope is Scope.TOPIC_POLICY:
        return 403, (
            f"Unauthorized to validateTopicPolicyOperation for operation [{need.operation}] on "
            f"topic [{place.topic}] on policy [{need.policy}]"
        )
    if need.scope is Scope.TENANT_ADMIN:
        return 401, "Don't have permission to administrate resources on this tenant"
    return 401, "This operation requires super-user access"


def _tenant_refusal(need: Need, place: Place, who: str) -> str:
    operation = f"about operation [{need.operation}]"
    if need.operation.endswith(("_TENANT", "_TENANTS")):
        return f"Unauthorized to validateBothTenantOperationAndSuperUser for {who} {operation} "
    return (
        f"Unauthorized to validateTenantOperation for {who} {operation} on tenant [{place.tenant}]"
    )
