"""Options of the connection: Java's names, TLS, and secrets, which are shown nowhere."""

from __future__ import annotations

import json

import pytest

import geminga
from pyspark_pulsar._options import ReadOptions, parse_read
from pyspark_pulsar.errors import InvalidOption

LEAST = {"service.url": "pulsar://broker:6650", "topic": "t"}
CLIENT = "pulsar.client."


def batch(**options: str) -> ReadOptions:
    return parse_read({**LEAST, **options}, streaming=False)


def refused(options: dict[str, str]) -> InvalidOption:
    with pytest.raises(InvalidOption) as caught:
        parse_read(options, streaming=False)
    return caught.value


@pytest.mark.parametrize(
    "url", ["broker:6650", "kafka://h", "pulsar://", "pulsar:///", "pulsar://u:p@h"]
)
def test_invalid_service_urls(url: str) -> None:
    assert refused({"service.url": url, "topic": "t"}).option == "service.url"


def test_client_options_in_javas_spelling() -> None:
    found = batch(
        **{
            CLIENT + "operationTimeoutMs": "1500",
            CLIENT + "KEEPALIVEINTERVALSECONDS": "9",
            CLIENT + "initialBackoffIntervalNanos": "250000000",
            CLIENT + "statsIntervalSeconds": "0",
            CLIENT + "memoryLimitBytes": "1m",
            CLIENT + "tlsAllowInsecureConnection": "true",
            CLIENT + "tlsHostnameVerificationEnable": "false",
            CLIENT + "tlsCertificateFilePath": "/c",
            CLIENT + "tlsKeyFilePath": "/k",
            CLIENT + "tlsProtocols": "TLSv1.3,TLSv1.2",
            CLIENT + "listenerName": "inside",
        }
    ).client
    made = geminga.ClientOptions(**found.keywords())
    assert made.operation_timeout_s == 1.5
    assert made.keep_alive_interval_s == 9.0
    assert made.initial_backoff_s == 0.25
    assert made.stats_interval_s == 0.0
    assert made.memory_limit_bytes == 1 << 20
    assert made.tls_allow_insecure_connection
    assert not made.tls_validate_hostname
    assert made.tls_private_key_file_path == "/k"
    assert made.tls_protocols == ("TLSv1.3", "TLSv1.2")
    assert made.listener_name == "inside"


def test_use_tls_changes_the_scheme() -> None:
    assert batch(**{CLIENT + "useTls": "true"}).client.service_url == "pulsar+ssl://broker:6650"
    assert batch(**{CLIENT + "useTls": "false"}).client.service_url == "pulsar://broker:6650"
    secure = {"service.url": "pulsar+ssl://h", "topic": "t", CLIENT + "useTls": "false"}
    assert refused(secure).option == CLIENT + "useTls"


SECRET = "s3cr3t-of-the-test"


@pytest.mark.parametrize(
    ("plugin", "params"),
    [
        ("org.apache.pulsar.client.impl.auth.AuthenticationToken", f"token:{SECRET}"),
        ("basic", json.dumps({"userId": "u", "password": SECRET})),
    ],
)
def test_secrets_are_shown_nowhere(plugin: str, params: str) -> None:
    auth = {CLIENT + "authPluginClassName": plugin, CLIENT + "authParams": params}
    found = batch(**auth, privateKeyPath=f"/{SECRET}")
    assert SECRET not in repr(found) + str(found) + repr(found.client)
    assert found.client.authentication() is not None
    assert found.client.auth_params == params
    for bad in (f"{{{SECRET}", f'{{"password": ["{SECRET}"]}}'):
        basic = {CLIENT + "authPluginClassName": "basic", CLIENT + "authParams": bad}
        error = refused({**LEAST, **basic})
        assert error.option == CLIENT + "authParams"
        assert SECRET not in f"{error}{error!r}"


@pytest.mark.parametrize(
    ("plugin", "params"),
    [
        ("token", SECRET),
        ("org.apache.pulsar.client.impl.auth.AuthenticationToken", f" {SECRET}"),
        ("oauth2", json.dumps({"issuerUrl": "http://i", "privateKey": f"data:,{SECRET}"})),
    ],
)
def test_secrets_that_spark_would_display_are_refused(plugin: str, params: str) -> None:
    auth = {CLIENT + "authPluginClassName": plugin, CLIENT + "authParams": params}
    error = refused({**LEAST, **auth})
    assert error.option == CLIENT + "authParams"
    assert SECRET not in str(error)
    for key in (f"data:application/x-pem-file;base64,{SECRET}", f"-----BEGIN {SECRET}"):
        for text in (key, json.dumps({"name": key})):
            error = refused({**LEAST, "privateKeyPath": text})
            assert error.option == "privateKeyPath"
            assert SECRET not in str(error)


def test_unknown_plug_ins_are_refused() -> None:
    error = refused({**LEAST, CLIENT + "authPluginClassName": "com.example.Own"})
    assert error.option == CLIENT + "authPluginClassName"
