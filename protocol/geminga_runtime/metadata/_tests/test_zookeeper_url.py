"""URLs of metadata stores on ZooKeeper."""

from __future__ import annotations

import pytest

from geminga_runtime.metadata.zookeeper_url import parse_url, store_of_ledgers, with_scheme
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


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ("zk+hierarchical://h:2181/ledgers", "zk:h:2181"),
        ("zk+longhierarchical://a:1;b:2/chroot/ledgers", "zk:a:1,b:2/chroot"),
        ("zk+null://a:1,b:2/ledgers", "zk:a:1,b:2"),
        ("zk://h/ledgers", "zk:h"),
        ("metadata-store:zk:a:1,b:2/x/ledgers", "zk:a:1,b:2/x"),
        ("metadata-store:h:2181/ledgers", "zk:h:2181"),
    ],
)
def test_uris_of_ledgers(uri: str, url: str) -> None:
    assert store_of_ledgers("k", uri) == url
    parse_url(url)


@pytest.mark.parametrize(
    "uri",
    ["zk+flat://h/ledgers", "etcd:http://h/ledgers", "metadata-store:etcd:http://h/ledgers",
     "h:2181/ledgers", "zk+hierarchical://h:2181", "zk+hierarchical://h:2181/other",
     "metadata-store:zk:h:2181", "metadata-store:rocksdb:/x/ledgers", ""],
)  # fmt: skip
def test_wrong_uris_of_ledgers_name_their_key(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"^metadataServiceUri: '"):
        store_of_ledgers("metadataServiceUri", uri)


def test_a_url_without_scheme_is_on_zookeeper() -> None:
    assert with_scheme("h:2181/c") == with_scheme("zk:h:2181/c") == "zk:h:2181/c"
    assert with_scheme("etcd:http://h") == "etcd:http://h"
