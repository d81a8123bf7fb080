"""Configuration: Apache's keys, types, bounds, and errors in one sentence."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from geminga_broker.config import BrokerConfig, load_cluster_config, load_config
from geminga_runtime.settings import ConfigError, current


def write(path: Path, text: str) -> Path:
    file = path / "broker.conf"
    file.write_text(text)
    return file


def test_defaults() -> None:
    config = load_config(None, {})
    assert config == BrokerConfig()
    assert config.network.max_message_size_bytes == 5 * 1024 * 1024
    assert config.topics.namespace_bundles == 4


def test_file_environment_and_overrides_in_that_order(tmp_path: Path) -> None:
    file = write(tmp_path, "clusterName=a\nbrokerServicePort=1\nmaxMessageSize=3\n")
    environment = {"PULSAR_PREFIX_brokerServicePort": "2", "PULSAR_PREFIX_maxMessageSize": "4"}
    config = load_config(
        file,
        environment,
        {"maxMessageSize": "5"},
        defaults={"clusterName": "z", "webServicePort": "9"},
    )
    network = config.network
    assert network.cluster_name == "a"
    assert network.broker_service_port == 2
    assert network.max_message_size_bytes == 5
    assert network.web_service_port == 9


def test_types_are_read(tmp_path: Path) -> None:
    file = write(
        tmp_path, "allowAutoTopicCreation=FALSE\nmanagedLedgerDefaultMarkDeleteRateLimit= 0.5\n"
    )
    config = load_config(file, {})
    assert config.topics.allow_auto_creation is False
    assert config.log.mark_delete_rate_per_s == 0.5


def test_an_empty_value_is_the_default(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "maxMessageSize=\n"), {}) == BrokerConfig()


def test_unknown_keys_are_warned_about_once_together(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        load_config(write(tmp_path, "zzz=x\nclusterName=y\nabc=1\n"), {})
    assert [record.getMessage() for record in caplog.records] == [
        "configuration keys that are not used: abc, zzz"
    ]


def test_a_key_that_is_nearly_a_known_one_is_asked_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = "webServicePrt=1\nbrokerservicePort=2\nbrokerClientAuthenticationPlugin=x\nabc=1\n"
    with caplog.at_level(logging.WARNING):
        load_config(write(tmp_path, lines), {})
    [record] = caplog.records
    assert record.getMessage() == (
        "configuration keys that are not used: abc, brokerservicePort (did you mean "
        "brokerServicePort?), webServicePrt (did you mean webServicePort?)"
    )


def test_all_wrong_values_are_told_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "gcWaitTime=x\nbrokerServicePort=y\nclusterName=ok\n")
    with pytest.raises(ConfigError) as refused:
        load_config(path, {"PULSAR_PREFIX_maxTenants": "z"})
    assert sorted(str(refused.value).splitlines()) == [
        f"brokerServicePort in {path}: 'y' is not a whole number",
        f"gcWaitTime in {path}: 'x' is not a whole number",
        "maxTenants in environment PULSAR_PREFIX_maxTenants: 'z' is not a whole number",
    ]


def test_many_wrong_values_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geminga_runtime.settings.ERRORS_MAX", 1)
    with pytest.raises(ConfigError, match=r"^\w+ in .*\n2 more are wrong$"):
        load_config(write(tmp_path, "gcWaitTime=x\nbrokerServicePort=y\nmaxTenants=z\n"), {})


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("brokerServicePort=x", "brokerServicePort in {file}: 'x' is not a whole number"),
        (
            "brokerServicePort=65536",
            "brokerServicePort in {file}: 65536 is out of bounds, it must be from -1 to 65535",
        ),
        (
            "maxConcurrentLookupRequest=0",
            "maxConcurrentLookupRequest in {file}: 0 is out of bounds, it must be at least 1",
        ),
        ("journalSyncData=yes", "journalSyncData in {file}: 'yes' is not true or false"),
        (
            "managedLedgerDefaultMarkDeleteRateLimit=nan",
            "managedLedgerDefaultMarkDeleteRateLimit in {file}: 'nan' is not a finite number",
        ),
        (
            "gcWaitTime=9223372036854775808",
            "gcWaitTime in {file}: '9223372036854775808' is not a whole number of 64 bits",
        ),
        (
            "maxTenants=" + "x" * 300,
            "maxTenants in {file}: '" + "x" * 200 + "...' is not a whole number",
        ),
        (
            "clusterName=\\ud800",
            "clusterName in {file}: '\\ud800' is not a text of whole characters",
        ),
        (
            "allowAutoTopicCreationType=both",
            "allowAutoTopicCreationType in {file}: 'both' is none of partitioned, non-partitioned",
        ),
        (
            "managedLedgerDefaultWriteQuorum=2",
            (
                "managedLedgerDefaultAckQuorum must not be above managedLedgerDefaultWriteQuorum, "
                "nor that above managedLedgerDefaultEnsembleSize"
            ),
        ),
    ],
)
def test_errors_are_one_sentence(tmp_path: Path, line: str, sentence: str) -> None:
    file = write(tmp_path, line + "\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    assert str(caught.value) == sentence.format(file=file)


@pytest.mark.parametrize("key", [
    "maxHttpServerConnections", "brokerMaxConnections", "brokerMaxConnectionsPerIp",
    "brokerServiceCompactionMonitorIntervalInSeconds", "retentionCheckIntervalInSeconds",
    "subscriptionExpiryCheckIntervalInMinutes", "brokerDeduplicationSnapshotFrequencyInSeconds",
    "maxProducersPerTopic", "maxConsumersPerTopic", "maxConsumersPerSubscription",
    "maxSubscriptionsPerTopic", "maxTopicsPerNamespace", "maxNumPartitionsPerPartitionedTopic",
    "maxUnackedMessagesPerConsumer", "maxUnackedMessagesPerSubscription",
    "maxUnackedMessagesPerBroker", "maxPublishRatePerTopicInMessages",
    "dispatchThrottlingRatePerTopicInByte", "brokerPublisherThrottlingMaxByteRate",
])  # fmt: skip
@pytest.mark.parametrize("value", ["0", "-1"])
def test_limits_and_checks_are_off_as_with_apache(tmp_path: Path, key: str, value: str) -> None:
    assert current(load_config(write(tmp_path, f"{key}={value}\n"), {}), key) == 0


def test_a_quota_below_none_is_none(tmp_path: Path) -> None:
    found = load_config(write(tmp_path, "backlogQuotaDefaultLimitGB=-7\n"), {})
    assert found.policies.quota_gb == -1.0


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.conf can't be read"):
        load_config(tmp_path / "gone.conf", {})


def test_values_are_written_as_in_a_file(tmp_path: Path) -> None:
    lines = [f"{key}={value}" for key, value in BrokerConfig().values().items()]
    assert load_config(write(tmp_path, "\n".join(lines)), {}) == BrokerConfig()


@pytest.mark.parametrize(
    ("text", "own", "configuration", "timeout_ms"),
    [
        ("metadataStoreUrl=zk:a\nzookeeperServers=b\n", "zk:a", "", 30_000),
        ("zookeeperServers=b:1\nglobalZookeeperServers=c\n", "b:1", "c", 30_000),
        ("metadataStoreUrl=\nzookeeperServers=b\nconfigurationStoreServers=d\n", "b", "d", 30_000),
        ("zookeeperServers=b\nzooKeeperSessionTimeoutMillis=5\n", "b", "", 5),
        ("zooKeeperSessionTimeoutMillis=-1\n", "", "", 30_000),
        ("metadataStoreSessionTimeoutMillis=9\nzooKeeperSessionTimeoutMillis=5\n", "", "", 5),
        ("", "", "", 30_000),
    ],
)  # fmt: skip
def test_older_keys_count_where_a_clusters_key_is_not_set(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    text: str,
    own: str,
    configuration: str,
    timeout_ms: int,
) -> None:
    cluster = load_cluster_config(write(tmp_path, text), {}).cluster
    assert cluster.metadata_store_url == own
    assert cluster.configuration_store_url == configuration
    assert cluster.session_timeout_ms == timeout_ms
    assert not caplog.records


def test_a_clusters_ledgers_have_apaches_quorums(tmp_path: Path) -> None:
    log = load_cluster_config(None, {}).log
    assert (log.ensemble_size, log.write_quorum, log.ack_quorum) == (2, 2, 2)
    with pytest.raises(ConfigError, match="managedLedgerDefaultAckQuorum"):
        load_cluster_config(write(tmp_path, "managedLedgerDefaultAckQuorum=3\n"), {})


@pytest.mark.parametrize("host", ["http://h", "h:6650", "::1", "a b", "h/x"])
def test_an_advertised_address_is_a_host(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match=r"^advertisedAddress in .* is not a host's name"):
        load_config(write(tmp_path, f"advertisedAddress={host}\n"), {})


@pytest.mark.parametrize("host", ["", "h", "one.example", "10.0.0.1", "[::1]", "my_host-1"])
def test_hosts_that_can_be_advertised(tmp_path: Path, host: str) -> None:
    config = load_config(write(tmp_path, f"advertisedAddress={host}\n"), {})
    assert config.network.advertised_address == host


WEIGHT = "loadBalancerBandwidthInResourceWeight"


@pytest.mark.parametrize(
    ("text", "timeout_s", "weight"),
    [
        ("zooKeeperOperationTimeoutSeconds=-1\n", 30, 1.0),
        ("zooKeeperOperationTimeoutSeconds=7\n", 7, 1.0),
        ("loadBalancerBandwithInResourceWeight=0\n", 30, 0.0),
        (f"{WEIGHT}=1.0\nloadBalancerBandwithInResourceWeight=3\n", 30, 3),
        (f"{WEIGHT}=2\nloadBalancerBandwithInResourceWeight=3\n", 30, 2),
    ],
)  # fmt: skip
def test_older_names_count_everywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, timeout_s: int, weight: float
) -> None:
    for config in (
        load_config(write(tmp_path, text), {}),
        load_cluster_config(write(tmp_path, text), {}),
    ):
        assert config.peers.timeout_s == timeout_s
        assert config.load_balance.bandwidth_in_weight == weight
    assert not caplog.records
