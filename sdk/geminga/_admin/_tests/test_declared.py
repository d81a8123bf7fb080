from __future__ import annotations

import inspect
import json

import pytest

from geminga._admin import declared
from geminga._admin.declared import Declaration, declaration_of
from geminga._admin.errors import AdminError
from geminga._admin.families.clusters import IsolationPolicies
from geminga._admin.families.namespaces import Bundles, Namespaces
from geminga._admin.families.subscriptions import Subscriptions
from geminga._admin.families.tenants import Tenants
from geminga._admin.families.topics import Stats, Topics
from geminga._admin.messages import messages_of
from geminga._admin.model.cluster import (
    BrokerNamespaceIsolationData,
    NamespaceIsolationData,
    TenantInfo,
)
from geminga._admin.model.policies import DispatchRate, Policies, RetentionPolicies
from geminga._admin.model.stats import TopicStats
from geminga._admin.model.topics import EARLIEST, LATEST
from geminga._admin.policy_paths import PolicyPath
from geminga._admin.requests import namespace_path, subscription_segment, topic_path
from geminga.errors import InvalidArgumentError, InvalidTopicNameError
from geminga_runtime.http.answers import HttpAnswer


def answer(body: str | bytes) -> HttpAnswer:
    return HttpAnswer(200, {}, body.encode() if isinstance(body, str) else body)


@pytest.mark.parametrize(
    ("topic", "path"),
    [
        ("t", "persistent/public/default/t"),
        ("a/b/t", "persistent/a/b/t"),
        ("non-persistent://a/b/t", "non-persistent/a/b/t"),
        ("persistent://a/b/t-partition-3", "persistent/a/b/t-partition-3"),
        ("Persistent://a/b/t", "persistent/a/b/t"),
        ("a/b/c d+e%2F?#ä", "persistent/a/b/c%20d%2Be%252F%3F%23%C3%A4"),
    ],
)
def test_paths_of_topics(topic: str, path: str) -> None:
    assert topic_path(topic) == path


@pytest.mark.parametrize(
    "topic",
    ["", "a/b", "a/b/c/d", "x://a/b/c", "persistent://t", "a//c", "persistent://a/b/", ".."],
)
def test_bad_names_of_topics(topic: str) -> None:
    with pytest.raises(InvalidTopicNameError if topic != ".." else InvalidArgumentError):
        topic_path(topic)


@pytest.mark.parametrize("namespace", ["", "a", "a/", "/b", "a/b/c", "../b", "a/.."])
def test_bad_names_of_namespaces(namespace: str) -> None:
    with pytest.raises(InvalidArgumentError):
        namespace_path(namespace)


def test_names_of_subscriptions_are_encoded_twice() -> None:
    assert subscription_segment("a b/%") == "a%2520b%252F%2525"


def test_a_request() -> None:
    declaration = declaration_of(Stats.get)
    request = declaration.request(("a/b/t",), {"get_precise_backlog": True})
    assert (request.method, request.path) == ("GET", "/admin/v2/persistent/a/b/t/stats")
    assert dict(request.query)["getPreciseBacklog"] == "true"
    assert dict(request.query)["subscriptionBacklogSize"] == "true"
    assert request.body is None


def test_none_is_not_sent() -> None:
    request = declaration_of(Bundles.split).request(("a/b", "LARGEST"), {})
    assert (request.query, request.body) == ([("unload", "false")], None)
    request = declaration_of(Subscriptions.create).request(("t", "s"), {})
    assert request.body is None


def test_bodies() -> None:
    info = TenantInfo(admin_roles=["a"])
    request = declaration_of(Tenants.create).request(("t", info), {})
    assert request.body == b'{"adminRoles":["a"],"allowedClusters":[]}'
    request = declaration_of(Topics.create_partitioned).request(("t", 3), {})
    assert (request.body, request.content_type) == (b"3", "application/json")
    request = declaration_of(Topics.create_partitioned).request(
        ("t", 3), {"properties": {"a": "b"}}
    )
    assert json.loads(request.body or b"") == {"partitions": 3, "properties": {"a": "b"}}
    assert request.content_type == "application/vnd.partitioned-topic-metadata+json"
    request = declaration_of(Namespaces.grant_permission).request(("a/b", "r", ["produce"]), {})
    assert request.body == b'["produce"]'


def test_places() -> None:
    assert json.loads(declared.encoded(EARLIEST)) == {
        "ledgerId": -1, "entryId": -1, "partitionIndex": -1, "batchIndex": -1, "excluded": False,
    }  # fmt: skip
    assert json.loads(declared.encoded(LATEST))["ledgerId"] == (1 << 63) - 1


def test_what_is_not_set_is_not_sent_but_all_else_is() -> None:
    assert json.loads(declared.encoded(DispatchRate())) == {
        "dispatchThrottlingRateInMsg": -1,
        "dispatchThrottlingRateInByte": -1,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 1,
    }
    policy = NamespaceIsolationData(namespaces=["a"], primary=["b"])
    assert json.loads(declared.encoded(policy)) == {
        "namespaces": ["a"], "primary": ["b"], "secondary": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), (("t", "u", "v"), {}), (("t",), {"no_such": 1})]
)
def test_wrong_arguments(args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        declaration_of(Topics.delete).request(args, kwargs)


@pytest.mark.parametrize(
    ("operation", "args", "named"),
    [
        (Topics.create, (5,), "topic must be a text, not 5"),
        (Topics.create, (None,), "topic must be a text, not None"),
        (Tenants.get, (b"t",), "tenant must be a text"),
        (Bundles.list, (["a/b"],), "namespace must be a text"),
        (Subscriptions.create, ("t", 3), "subscription must be a text"),
    ],
)
def test_a_name_must_be_a_text(operation: object, args: tuple[object, ...], named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        declaration_of(operation).request(args, {})


def test_a_name_in_a_policy_s_path_must_be_a_text() -> None:
    for path_of in (topic_path, namespace_path):
        with pytest.raises(InvalidArgumentError, match="must be a text, not 5"):
            path_of(5)


def test_what_isolation_policies_say_of_a_broker() -> None:
    told = '{"brokerName": "b", "namespaceRegex": [], "primary": true}'
    found = declaration_of(IsolationPolicies.broker).result(answer(told))
    assert found == BrokerNamespaceIsolationData(
        broker_name="b", namespace_regex=[], is_primary=True
    )


def test_answers() -> None:
    names = declaration_of(Tenants.list)
    assert names.result(answer('["a"]')) == ["a"]
    info = declaration_of(Tenants.get)
    assert info.result(answer('{"adminRoles":["a"],"new":{"x":1}}')) == TenantInfo(
        admin_roles=["a"]
    )
    assert declaration_of(Tenants.delete).result(answer("whatever")) is None
    stats = declaration_of(Stats.get).result(
        answer('{"msgRateIn":1,"storageSize":"7","subscriptions":{"s":{"msgBacklog":3}}}')
    )
    assert isinstance(stats, TopicStats)
    assert (stats.msg_rate_in, stats.storage_size) == (1.0, 7)
    assert stats.subscriptions["s"].msg_backlog == 3


@pytest.mark.parametrize("body", ["", "<html>", '{"a":', '{"adminRoles":3}', "[]", b"\xff"])
def test_answers_that_can_t_be_read(body: str | bytes) -> None:
    with pytest.raises(AdminError, match="the answer can't be read") as caught:
        declaration_of(Tenants.get).result(answer(body))
    assert caught.value.code == "BadAnswer"


def test_texts_are_taken_as_they_are_or_as_json() -> None:
    for body in ("group", '"group"'):
        where = PolicyPath("antiAffinity", str, is_plain=True)
        assert where.value(answer(body)) == "group"
        assert where.setting("/ns", "group").body == b"group"


@pytest.mark.parametrize("body", ["", "null", "  "])
def test_policies_that_aren_t_set(body: str) -> None:
    assert PolicyPath("retention", RetentionPolicies).value(answer(body)) is None


def test_policies_of_a_namespace_have_two_kinds_of_names() -> None:
    body = """{"auth_policies":{"namespace_auth":{"r":["produce"]},"destination_auth":{}},
        "message_ttl_in_seconds":60,"deduplicationEnabled":true,
        "retention_policies":{"retentionTimeInMinutes":1,"retentionSizeInMB":2}}"""
    found = declaration_of(Namespaces.get_policies).result(answer(body))
    assert isinstance(found, Policies)
    assert found.auth_policies.namespace_auth == {"r": ["produce"]}
    assert (found.message_ttl_in_seconds, found.deduplication_enabled) == (60, True)
    assert found.retention_policies is not None
    assert found.retention_policies.retention_size_in_mb == 2


def test_messages_of_older_brokers_have_a_header_for_each_property() -> None:
    headers = (("X-Pulsar-PROPERTY-Key", "a"), ("X-Pulsar-Message-ID", "1:2"))
    [message] = messages_of(HttpAnswer(200, {}, b"x", headers))
    assert (message.message_id, message.properties) == ("1:2", {"Key": "a"})


@pytest.mark.parametrize("body", [b"", b"\x00\x00\x00\x05abc", b"\xff" * 20])
def test_a_batch_that_can_t_be_read(body: bytes) -> None:
    headers = (("X-Pulsar-num-batch-message", "3"),)
    with pytest.raises(AdminError, match="the batch can't be read"):
        messages_of(HttpAnswer(200, {}, body, headers))


def test_calls_keep_their_signatures() -> None:
    assert inspect.iscoroutinefunction(Topics.create)
    parameters = inspect.signature(Topics.create_partitioned).parameters
    assert list(parameters) == [
        "self", "topic", "partitions", "properties", "create_local_topic_only",
    ]  # fmt: skip
    assert isinstance(declaration_of(Topics.create), Declaration)
