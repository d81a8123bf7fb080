from __future__ import annotations

import pytest

from geminga._connection.service_url import Address, parse, parse_one
from geminga.errors import InvalidServiceUrlError


def test_addresses() -> None:
    assert parse("pulsar://a:1,b,[::1]:7,[::2]") == (
        Address("a", 1),
        Address("b", 6650),
        Address("::1", 7),
        Address("::2", 6650),
    )
    assert parse("pulsar+ssl://h/") == (Address("h", 6651, True),)
    assert parse_one("pulsar://h:5").url == "pulsar://h:5"
    assert parse_one("pulsar+ssl://[::1]").url == "pulsar+ssl://[::1]:6651"


@pytest.mark.parametrize(
    "url",
    ["", "h:1", "ftp://h", "https://", "http://", "pulsar://", "pulsar://:1", "pulsar://h:x", "pulsar://h:70000",
     "pulsar://[::1", "pulsar://[::1]x", "pulsar://h:0"],
)  # fmt: skip
def test_bad_urls(url: str) -> None:
    with pytest.raises(InvalidServiceUrlError, match="service_url"):
        parse(url)


def test_web_services() -> None:
    first, second = parse("http://h,[::1]:81/ignored")
    assert (first.url, second.url) == ("http://h:8080", "http://[::1]:81")
    assert first.http
    assert not parse("pulsar://h")[0].http
