"""URLs of metadata stores on ZooKeeper."""

from __future__ import annotations

import pytest

from geminga_runtime.metadata.zookeeper_url import parse_url
from geminga_runtime.settings import ConfigError


@pytest.mark.parametrize(
    ("url", "hosts", "chroot"),
    [
        ("zk:h", "h:2181", ""),
        ("zk:h:2182/", "h:2182", ""),
        ("zk:a,b:1,10.0.0.1:65535/pulsar/one", "a:2181,b:1,10.0.0.1:65535", "/pulsar/one"),
        ("zk:[::1]:2182,[fe80::1]/c", "[::1]:2182,[fe80::1]:2181", "/c"),
        ("zk:my-zk-1.example.com:2181", "my-zk-1.example.com:2181", ""),
    ],
)
def test_urls(url: str, hosts: str, chroot: str) -> None:
    parsed = parse_url(url)
    assert (parsed.connect_string, parsed.chroot) == (hosts, chroot)


@pytest.mark.parametrize(
    "url",
    ["h:2181", "zk:", "zk:/c", "zk://h:2181", "zk:h:0", "zk:h:65536", "zk:h:x", "zk:a,,b",
     "zk:a b", "zk:::1", "zk:[1.2]:3", "zk:[:::]", "zk:[::1", "zk:user:key@h", "zk:key@h:1",
     "zk:h?a=b", "zk:h#a:1", "zk:h/c/", "zk:h//c", "sqlite:///f"],
)  # fmt: skip
def test_wrong_urls(url: str) -> None:
    with pytest.raises(ConfigError, match="metadata store"):
        parse_url(url)
