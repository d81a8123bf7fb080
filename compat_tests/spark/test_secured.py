"""Spark against a broker with TLS, authentication and authorization, by all three methods of proof
(spec SP-07).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import geminga.blocking
from compat_tests.processes import ServerProcess
from compat_tests.secured import METHODS, TOKEN_PLUGIN, Keys, start_broker

PACKAGE = TOKEN_PLUGIN.rpartition(".")[0]
CLIENT = "pulsar.client."


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def server(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    running = start_broker("geminga", tmp_path_factory.mktemp("secured"), keys)
    yield running
    assert running.stop(timeout_s=60) == 0, running.log_tail()


def options(server: ServerProcess, keys: Keys, method: str, role: str) -> dict[str, str]:
    """Of Spark, in Java's spelling, for a role."""
    certificate, key = keys.certificates[role]
    params = {
        "token": f"token:{keys.token(role)}",
        "tls": f"tlsCertFile:{certificate},tlsKeyFile:{key}",
        "basic": json.dumps({"userId": role, "password": keys.passwords[role]}),
    }
    return {
        "service.url": server.service_url_tls,
        CLIENT + "tlsTrustCertsFilePath": keys.ca,
        CLIENT + "authPluginClassName": f"{PACKAGE}.Authentication{method.capitalize()}",
        CLIENT + "authParams": params[method],
    }


@pytest.mark.parametrize("method", METHODS)
def test_read_and_write(
    spark: SparkSession,
    server: ServerProcess,
    keys: Keys,
    method: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What is written is read again, also with the layout from the REST API; nothing of it shows a
    secret.
    """
    topic = f"persistent://public/default/secured-{method}"
    alice = options(server, keys, method, "alice")
    frame = spark.range(40).selectExpr("id", "cast(id as string) as __key")
    single = {"pulsar.producer.batchingEnabled": "false"}
    frame.write.format("pulsar").options(topic=topic, **alice, **single).mode("append").save()
    read = spark.read.format("pulsar").options(topic=topic, minPartitions="3", **alice).load()
    assert sorted(row.id for row in read.collect()) == list(range(40))
    admin = options(server, keys, method, "admin") | {"admin.url": server.web_url_tls}
    again = spark.read.format("pulsar").options(topic=topic, minPartitions="3", **admin).load()
    assert again.rdd.getNumPartitions() == 3
    assert again.count() == 40
    shown = read._jdf.queryExecution().toString() + "".join(capfd.readouterr())
    for secret in keys.secrets():
        assert secret not in shown


@pytest.mark.parametrize("method", METHODS)
def test_who_may_not(spark: SparkSession, server: ServerProcess, keys: Keys, method: str) -> None:
    """Known, but without a grant; and not known at all. Told when the query is planned."""
    topic = "persistent://public/default/secured-closed"
    trust = {"tls_trust_certs_file_path": keys.ca}
    who = geminga.AuthenticationToken(keys.token("admin"))
    with geminga.blocking.connect(server.service_url_tls, authentication=who, **trust) as client:
        client.create_producer(topic).send(b"x")
    mallory = options(server, keys, method, "mallory")
    with pytest.raises(PySparkException, match="AuthorizationError") as caught:
        spark.read.format("pulsar").options(topic=topic, **mallory).load()
    assert topic in str(caught.value)
    nobody = mallory | {CLIENT + "authParams": "token:none", CLIENT + "operationTimeoutMs": "5000"}
    nobody[CLIENT + "authPluginClassName"] = "token"
    with pytest.raises(PySparkException, match="AuthenticationError") as caught:
        spark.read.format("pulsar").options(topic=topic, **nobody).load()
    for secret in keys.secrets():
        assert secret not in str(caught.value)


def test_a_server_that_is_not_trusted(
    spark: SparkSession, server: ServerProcess, keys: Keys, tmp_path: Path
) -> None:
    strange = Keys(tmp_path / "strange")
    given = options(server, keys, "token", "alice") | {
        CLIENT + "tlsTrustCertsFilePath": strange.ca,
        CLIENT + "operationTimeoutMs": "5000",
    }
    with pytest.raises(PySparkException, match=r"TlsError|certificate"):
        spark.read.format("pulsar").options(topic="t", **given).load()
