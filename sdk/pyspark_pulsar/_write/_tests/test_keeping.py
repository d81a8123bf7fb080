"""Warnings of a write: topics without retention, and columns with Kafka's names."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

import geminga.testing
from pyspark_pulsar._clients import client_for, close_clients
from pyspark_pulsar._encode._tests.frames import struct
from pyspark_pulsar._options._write_options import parse_write
from pyspark_pulsar._tests.admin import ask, path_of
from pyspark_pulsar._write import make_stream_writer, make_writer
from pyspark_pulsar._write._tests.test_task import fresh
from pyspark_pulsar.errors import InvalidOption

UNKEPT = "has neither a subscription nor retention"
JUST_MADE = "was just created and has no subscription"


@pytest.fixture(scope="module")
def url() -> Iterator[geminga.testing.BrokerUrl]:
    with geminga.testing.broker() as found:
        yield found
        close_clients()


def written(
    caplog: pytest.LogCaptureFixture, url: str, topic: str, ddl: str = "value string", **more: str
) -> str:
    """The logs of planning a write."""
    caplog.clear()
    options = parse_write({"service.url": url, "topic": topic, **more}, streaming=False)
    with caplog.at_level(logging.WARNING, "pyspark_pulsar"):
        make_writer(struct(ddl), options, overwrite=False)
    return caplog.text


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_topic_without_retention(
    caplog: pytest.LogCaptureFixture, url: geminga.testing.BrokerUrl, partitions: int
) -> None:
    topic = fresh()
    if partitions:
        ask(url.web_url, "PUT", f"{path_of(topic)}/partitions", partitions)
    admin = {"admin.url": url.web_url}
    for _ in range(2):
        told = written(caplog, url, topic, **admin)
        assert f"topic {topic} {UNKEPT}" in told
        assert "a minute or two after it was last used" in told
    options = parse_write({"service.url": url, "topic": topic}, streaming=False)
    client_for(options.client).subscribe(topic, "s").close()
    assert written(caplog, url, topic, **admin) == ""


def test_a_topic_with_retention(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "-1"}
    with geminga.testing.broker(settings) as url:
        assert written(caplog, url, fresh(), **{"admin.url": url.web_url}) == ""
        close_clients()


def test_without_the_rest_api_a_new_topic_is_warned_about(
    caplog: pytest.LogCaptureFixture, url: str
) -> None:
    topic = fresh()
    assert f"topic {topic} {JUST_MADE}" in written(caplog, url, topic)
    assert written(caplog, url, topic) == "", "it was there"
    subscription = {"pulsar.producer.initialSubscriptionName": "s"}
    assert written(caplog, url, fresh(), **subscription) == ""


def test_a_wrong_address_of_the_rest_api_is_an_error(
    caplog: pytest.LogCaptureFixture, url: geminga.testing.BrokerUrl
) -> None:
    for admin in ("http://127.0.0.1:1", url.web_url.replace("http", "https")):
        with pytest.raises(InvalidOption, match=r"option admin\.url: "):
            written(caplog, url, fresh(), **{"admin.url": admin})


def test_columns_by_kafkas_names(caplog: pytest.LogCaptureFixture, url: str) -> None:
    topic = fresh()
    ddl = "Key string, value string, headers array<struct<key: string, value: binary>>"
    told = written(caplog, url, topic, ddl)
    assert f"{topic}: columns Key, value, headers become fields of one record" in told
    assert "rename Key to __key, headers to __properties (map<string,string>)" in told
    assert "schemaType=keyvalue" in told
    assert "__key" not in written(caplog, url, topic, ddl), "once"
    for plain in ("key string, value string, amount int", "value string, topic2 string", "key int"):
        assert "__key" not in written(caplog, url, fresh(), plain)
    pairs = written(caplog, url, fresh(), "key string, value string", schemaType="keyvalue")
    assert "__key" not in pairs


def test_a_stream_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    options = parse_write(
        {"service.url": "pulsar://localhost", "schemaType": "auto"}, streaming=True
    )
    with caplog.at_level(logging.WARNING, "pyspark_pulsar"):
        for _ in range(3):
            make_stream_writer(
                struct("headers string, value string, __topic string"), options, overwrite=False
            )
    assert caplog.text.count("rename headers to __properties") == 1
