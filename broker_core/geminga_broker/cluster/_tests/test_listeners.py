"""Named listeners: what is accepted, and what clients are told."""

from __future__ import annotations

import pytest

from geminga_broker._tests.wire import open_broker
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.listeners import NO_LISTENERS, parse_listeners
from geminga_broker.cluster.lookup import NoSuchListener
from geminga_broker.config import load_config
from geminga_broker.ownership.records import owner_path
from geminga_protocol.topic_name import TopicName
from geminga_runtime.settings import ConfigError

BOUND = Addresses("pulsar://localhost:6650", "http://localhost:8080", "pulsar+ssl://localhost:6651")
TEXT = (
    "inside:pulsar://10.0.0.1:6650, outside:pulsar://b.org:16650,"
    "outside:pulsar+ssl://b.org:16651,outside:https://b.org:18443"
)
TOPIC = TopicName.parse("persistent://public/default/t")


def test_each_listener_has_its_addresses() -> None:
    found = parse_listeners(TEXT, "", "")
    assert found.internal == "inside"
    assert found.by_name == {
        "inside": Addresses("pulsar://10.0.0.1:6650", ""),
        "outside": Addresses(
            "pulsar://b.org:16650", "", "pulsar+ssl://b.org:16651", "https://b.org:18443"
        ),
    }


def test_brokers_are_told_the_internal_one() -> None:
    first = parse_listeners(TEXT, "", "").advertised(BOUND)
    assert first == Addresses(
        "pulsar://10.0.0.1:6650", "http://10.0.0.1:8080", "pulsar+ssl://10.0.0.1:6651"
    )
    other = parse_listeners(TEXT, "outside", "").advertised(BOUND)
    assert other.broker_url == "pulsar://b.org:16650"
    assert (other.web_url, other.web_url_tls) == ("http://b.org:8080", "https://b.org:18443")
    assert NO_LISTENERS.advertised(BOUND) == BOUND
    v6 = parse_listeners("a:pulsar://[::1]:6650", "", "").advertised(BOUND)
    assert v6.web_url == "http://[::1]:8080"


@pytest.mark.parametrize(
    ("text", "internal", "host", "told"),
    [
        ("a:pulsar://h:1", "", "h", "advertisedAddress can't both be set"),
        ("", "a", "", "needs advertisedListeners"),
        ("a:pulsar://h:1", "b", "", "has no 'b'"),
        ("a:pulsar://h:1,a:pulsar://h:2", "", "", "two addresses of one kind"),
        ("a:pulsar://h:1,b:pulsar://h:1", "", "", "h:1 is of two listeners, 'a', 'b'"),
        ("pulsar://h:1", "", "", "is not NAME:SCHEME"),
        ("a:kafka://h:1", "", "", "is not NAME:SCHEME"),
        ("a:pulsar://h", "", "", "is not NAME:SCHEME"),
        ("a:pulsar://h:1/path", "", "", "is not NAME:SCHEME"),
        ("a:pulsar://h:port", "", "", "has no valid port"),
        ("a:pulsar://h:99999", "", "", "has no valid port"),
        (",".join(f"l{n}:pulsar://h:{n + 1}" for n in range(33)), "", "", "more than 32"),
    ],
)
def test_what_is_refused(text: str, internal: str, host: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_listeners(text, internal, host)
    settings = {"advertisedListeners": text, "internalListenerName": internal}
    with pytest.raises(ConfigError, match=told):
        load_config(None, {}, {**settings, "advertisedAddress": host})


async def test_a_client_is_told_the_one_that_it_names() -> None:
    config = load_config(None, {}, {"advertisedListeners": TEXT})
    async with open_broker(config) as broker:
        service = broker.service
        for _ in range(2):  # not owned yet, and owned
            found = await service.lookup.locate(TOPIC, "outside")
            assert found.addresses == Addresses(
                "pulsar://b.org:16650",
                "http://here:2",
                "pulsar+ssl://b.org:16651",
                "https://b.org:18443",
            )
        assert (await service.lookup.locate(TOPIC)).addresses == service.addresses
        with pytest.raises(NoSuchListener, match="no listener named elsewhere"):
            await service.lookup.locate(TOPIC, "elsewhere")
        node = await service.store.get(owner_path(await service.namespaces.bundle_of(TOPIC)))
        assert node is not None
        assert b'"outside":{"brokerServiceUrl":"pulsar://b.org:16650"' in node.value
