"""Keys of Apache's bookkeeper.conf."""

from __future__ import annotations

import logging
import os
import pwd
import re
import socket
from pathlib import Path

import pytest

from geminga_bookie.process.address import resolve
from geminga_bookie.process.config import BookieConfig, load_config
from geminga_bookie.wire._tests.auth_plugin import WordClient
from geminga_bookie.wire.auth import TLS_ROLES, TlsRoles
from geminga_runtime.settings import ConfigError

WHERE = {"journalDirectories": "/j1,/j2", "ledgerDirectories": "/l1,/l2"}


def config(**values: str) -> BookieConfig:
    return load_config(None, {}, {**WHERE, **values})


def test_settings_of_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "bookkeeper.conf"
    path.write_text(
        "bookiePort=3999\njournalDirectory=journal\nledgerDirectories=/l\nindexDirectories=/i\n"
        "zkServers=h1:2181,h2:2181\nzkLedgersRootPath=/p/ledgers\ndiskUsageThreshold=0.9\n"
        "nettyMaxFrameSizeBytes=100000\nmaxAddsInProgressLimit=7\nmaxReadsInProgressLimit=9\n"
        "waitTimeoutOnResponseBackpressureMs=1500\nminorCompactionInterval=-1\n"
        "localScrubInterval=0\nserverTcpNoDelay=false\njournalRemovePagesFromCache=false\n"
        "numReadWorkerThreads=8\nmaxPendingReadRequestsPerThread=2500\n"
    )
    with caplog.at_level(logging.WARNING):
        found = load_config(path, {}, {})
    assert "no effect here: serverTcpNoDelay (sockets have fixed options)" in caplog.text
    assert found.metadata.store_url() == "zk:h1:2181,h2:2181/p"
    options = found.bookie_options("b:1")
    assert options.journal_dirs == [Path("journal").resolve()]
    assert (options.ledger_dirs, options.index_dirs) == ([Path("/l")], [Path("/i")])
    assert (options.disk.usage_max, options.disk.usage_low) == (0.9, 0.9)
    assert (options.gc.minor_threshold, options.gc.major_threshold) == (0.0, 0.5)
    assert options.gc.scrub_interval_s == float("inf")
    assert (options.read_threads, options.waiting_reads_max) == (8, 20_000)
    assert options.replicas_elsewhere
    assert not options.journal.drops_cached
    server = found.server_options("0.0.0.0")
    assert (server.port, server.tls) == (3999, None)
    limits = server.limits
    assert (limits.frame_bytes_max, limits.unanswered_requests_max) == (100_000, 9)
    assert (limits.drop_after_s, limits.write_timeout_s) == (1.5, 60)
    assert (server.unfinished_bytes_max, server.waiting_bytes_max) == (256 << 20, 40 << 20)


def test_clients_that_take_no_answers() -> None:
    def limits(**values: str) -> tuple[float | None, float]:
        found = config(**values).server_options("h").limits
        return found.drop_after_s, found.write_timeout_s

    wait = {"waitTimeoutOnResponseBackpressureMs": "250"}
    assert limits() == (None, 60)
    assert limits(closeChannelOnResponseTimeout="true") == (None, 60)
    assert limits(**wait) == (0.25, 60)
    assert limits(**wait, closeChannelOnResponseTimeout="true") == (None, 0.25)
    assert limits(waitTimeoutOnResponseBackpressureMs="0") == (0, 60)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"clientAuthProviderFactoryClass": "org.x.Y"}, "^clientAuthProviderFactoryClass: .* Java"),
        ({"tlsProviderFactoryClass": "f", "clientTrustStore": "/no"}, "^clientTrustStore: /no"),
        ({"tlsProviderFactoryClass": "f", "clientKeyStore": "/no"}, "^tlsCertificatePath: it is"),
    ],
)
def test_wrong_values_of_the_client(values: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        config(**values).remote_options()


def test_authentication() -> None:
    plugin = "geminga_bookie.wire._tests.auth_plugin"
    found = config(
        bookieAuthProviderFactoryClass=TLS_ROLES,
        authorizedRoles="writer, reader",
        clientAuthProviderFactoryClass=f"{plugin}:client",
        permittedStartupUsers=f"x,{pwd.getpwuid(os.geteuid()).pw_name}",
    )
    found.security.check_user()
    assert isinstance(found.server_options("h").auth, TlsRoles)
    remote = found.remote_options()
    assert isinstance(remote.auth, WordClient)
    assert remote.tls is None
    usual = config()
    usual.security.check_user()
    assert (usual.server_options("h").auth, usual.remote_options().auth) == (None, None)


def test_the_environment_doesn_t_tell_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody")
    with pytest.raises(ConfigError, match=r"^permittedStartupUsers: user "):
        config(permittedStartupUsers="somebody").security.check_user()


def test_bounds_over_all_connections() -> None:
    found = config(
        unfinishedFramesMaxBytes="5000000",
        waitingReadsMaxBytes="70000",
        waitingAnswersMaxBytes="9000000",
    )
    server = found.server_options("h")
    assert server.answers_bytes_max == 9_000_000
    assert (server.unfinished_bytes_max, server.waiting_bytes_max) == (5_000_000, 70_000)


def test_several_journals_go_before_the_one() -> None:
    assert config(journalDirectory="/j").bookie_options("b").journal_dirs == [
        Path("/j1"),
        Path("/j2"),
    ]


def test_indexes_beside_their_ledgers_are_the_default() -> None:
    options = config(indexDirectories="/l1,/x/../l2").bookie_options("b")
    assert (options.ledger_dirs, options.index_dirs) == ([Path("/l1"), Path("/l2")], [])


@pytest.mark.parametrize("key", ["journalRemovePagesFromCache", "journalRemoveFromPageCache"])
def test_journals_stay_in_memory_by_either_key(key: str) -> None:
    assert config().bookie_options("b").journal.drops_cached
    assert not config(**{key: "false"}).bookie_options("b").journal.drops_cached


def test_adds_that_wait() -> None:
    def waiting(**values: str) -> int | None:
        return config(**values).bookie_options("b").waiting_adds_max

    assert waiting() == 10_000
    assert waiting(maxPendingAddRequestsPerThread="70", numAddWorkerThreads="3") == 210
    assert waiting(numAddWorkerThreads="0") is None


def test_reads_have_a_thread_at_least() -> None:
    options = config(numReadWorkerThreads="0").bookie_options("b")
    assert (options.read_threads, options.waiting_reads_max) == (1, 10_000)
    usual = config().bookie_options("b")
    assert (usual.read_threads, usual.waiting_reads_max) == (2, 20_000)


def test_one_port_at_two_addresses() -> None:
    http = {"httpServerEnabled": "true", "httpServerHost": "127.0.0.1", "bookiePort": "8080"}
    assert config(**http, listeningInterface="eth0").http.port == 8080


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"bookieAuthProviderFactoryClass": "org.x.Y"}, "^bookieAuthProviderFactoryClass: .* Java"),
        ({"bookieAuthProviderFactoryClass": TLS_ROLES}, "^authorizedRoles: must be set"),
        ({"permittedStartupUsers": "nobody-here, x"}, "^permittedStartupUsers: user "),
        ({"bookiePort": "0"}, "bookiePort in command line: 0 is out of bounds"),
        ({"bookiePort": "x"}, "bookiePort in command line: 'x' is not a whole number"),
        ({"journalDirectories": ""}, "journalDirectories: must be set"),
        ({"ledgerDirectories": " , "}, "ledgerDirectories: must be set"),
        ({"indexDirectories": "/i"}, "indexDirectories: there must be as many"),
        (
            {"bookiePort": "8080", "httpServerEnabled": "true"},
            "^bookiePort and httpServerPort are both 8080: each needs a port of its own$",
        ),
        ({"ledgerDirectories": "/l,/x/../l"}, "indexDirectories: /l is there twice"),
        ({"journalDirectories": "/l1"}, "indexDirectories: /l1 is there twice"),
        ({"indexDirectories": "/i,/l2"}, "indexDirectories: /l2 is there twice"),
        ({"diskUsageLwmThreshold": "0.99"}, "diskUsageLwmThreshold must not be above"),
        ({"tlsProviderFactoryClass": "f", "tlsKeyStoreType": "JKS"}, "tlsKeyStoreType in comm"),
        ({"tlsProviderFactoryClass": "f", "tlsTrustStoreType": "JKS"}, "tlsTrustStoreType in"),
        ({"tlsProviderFactoryClass": "f", "tlsKeyStorePasswordPath": "p"}, "tlsKeyStorePassword"),
        ({"tlsProviderFactoryClass": "f", "tlsCertificatePath": "/no/file"}, "tlsKeyStore: it is"),
        *(
            ({"bookieId": each, "advertisedAddress": "h"}, f"^bookieId: {re.escape(repr(each))} ")
            for each in ("readonly", "ReadOnly", "a/b", "..", ".", "a b", "a\x7f", "é", "a,b")
        ),
        ({"advertisedAddress": "a b"}, "^advertisedAddress: 'a b' can't be in a bookie's id"),
        ({"advertisedAddress": "a/b", "bookieId": "x"}, "^advertisedAddress: 'a/b' can't"),
        ({"advertisedAddress": ".."}, r"^advertisedAddress: '\.\.' can't"),
        ({"listeningInterface": "none9"}, "listeningInterface: 'none9' has no IPv4 address"),
        ({"listeningInterface": "lo"}, "allowLoopback: this machine's address is 127.0.0.1"),
    ],
)
def test_wrong_values_name_their_keys(values: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        made = config(**values)
        made.bookie_options("b:1")
        made.security.check_user()
        made.server_options("0.0.0.0")
        made.endpoint()


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "^metadataServiceUri: must be set"),
        ({"zkServers": "h", "zkLedgersRootPath": "/x"}, "^zkServers, zkLedgersRootPath: .* end"),
        ({"metadataServiceUri": "zk+hierarchical://h:x/ledgers"}, "^metadataServiceUri: .*'h:x'"),
        ({"metadataServiceUri": "etcd://h/ledgers"}, "^metadataServiceUri: .* is neither"),
    ],
)
def test_metadata_must_be_somewhere(values: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        config(**values).metadata.store_url()


def test_zk_servers_with_a_path() -> None:
    found = config(zkServers="h1,h2/p")
    assert found.metadata.store_url() == "zk:h1,h2/p"


def test_the_id_and_the_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda _name: "10.1.2.3")
    monkeypatch.setattr(socket, "getfqdn", lambda: "one.example")
    assert resolve(1) == ("10.1.2.3:1", "10.1.2.3", 1, "0.0.0.0")
    assert resolve(1, by_name=True).bookie_id == "one.example:1"
    assert resolve(1, advertised_address="h", bookie_id="b") == ("b", "h", 1, "0.0.0.0")
    for bookie_id in ("a=1", "a;b", "[::1]:3181", "...", "a\\b", "readonly-1", "A-b_c.d:1"):
        assert resolve(1, advertised_address="h", bookie_id=bookie_id).bookie_id == bookie_id
    found = resolve(1, interface="lo", allow_loopback=True)
    assert found == ("127.0.0.1:1", "127.0.0.1", 1, "127.0.0.1")


def test_a_machine_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_name: str) -> str:
        raise socket.gaierror("unknown")

    monkeypatch.setattr(socket, "gethostbyname", unknown)
    with pytest.raises(ConfigError, match=r"^advertisedAddress: must be set"):
        resolve(1)
