"""Which brokers get which credentials (spec PX-02, PX-04, PX-06, PX-23)."""

from __future__ import annotations

import pytest

from geminga_protocol.commands.connection import Original
from geminga_proxy.addresses import Address
from geminga_proxy.trust import CredentialPolicy, HttpCredentials, Targets, WebBrokers
from geminga_runtime.auth.api import Identity
from geminga_runtime.auth.own import OwnCredentials, own_credentials
from geminga_runtime.settings import ConfigError

A, B = Address("a", 6650), Address("b", 6650)
OWN = own_credentials("token", "token:ours")
JOE, BY_CERTIFICATE = Identity("joe", "token"), Identity("joe", "tls")
REPLACED = HttpCredentials(replaces=True, authorization="Bearer ours", role="joe")
KEPT = HttpCredentials(role="joe")


def targets(hosts: str = "", ips: str = "", ports: str = "6650,6651") -> Targets:
    return Targets([A], hosts, ips, ports)


def test_only_brokers_are_targets() -> None:
    found = targets()
    assert found.allows(A)
    for stranger in (B, Address("a", 6651), Address("127.0.0.1", 6650)):
        assert not found.allows(stranger)
    found.learn(B)
    assert found.allows(B)
    found.know([])
    assert (found.is_known(A), found.is_known(B)) == (False, True)


@pytest.mark.parametrize(
    ("hosts", "ips", "ports", "address", "allowed"),
    [
        ("b*", "", "6650", B, True),
        ("B*", "", "6650", B, True),
        ("b*", "", "6650", Address("b", 22), False),
        ("b*", "", "*", Address("b", 22), True),
        ("c", "", "6650", B, False),
        ("", "10.0.0.0/8", "6650", Address("10.1.2.3", 6650), True),
        ("", "10.0.0.0/8", "6650", Address("192.0.2.1", 6650), False),
        ("", "fd00::/8", "6650", Address("fd00::1%eth0", 6650), True),
        ("", "*", "6650", Address("192.0.2.1", 6650), True),
        ("10.*", "192.0.2.0/24", "6650", Address("10.1.2.3", 6650), False),
        # A name is resolved first: its addresses are checked then.
        ("", "10.0.0.0/8", "6650", B, True),
    ],
)
def test_what_the_configuration_allows(
    hosts: str, ips: str, ports: str, address: Address, allowed: bool
) -> None:
    assert targets(hosts, ips, ports).allows(address) == allowed


def test_addresses_of_names() -> None:
    assert targets("b").allows_ip("192.0.2.1")
    found = targets("b", "10.0.0.0/8")
    assert found.allows_ip("10.1.2.3")
    assert not found.allows_ip("192.0.2.1")
    with pytest.raises(ConfigError, match="brokerProxyAllowed"):
        targets(ips="10.0.0.0/99")


def test_web_brokers() -> None:
    configured = WebBrokers([A])
    configured.found([B])
    assert (configured.listed, configured.is_known(B)) == ([A], True)
    discovered = WebBrokers([])
    discovered.found([A])
    discovered.found([B])
    discovered.found([])
    assert (discovered.listed, discovered.is_known(A)) == ([B], False)


def test_connect_names_the_client() -> None:
    """Its credentials go to brokers only if the configuration forwards them."""
    assert CredentialPolicy(OWN, forwards=False).original("joe", "token", b"jwt") == Original("joe")
    forwards = CredentialPolicy(OWN, forwards=True)
    assert forwards.original("joe", "token", b"jwt") == Original("joe", "jwt", "token")


@pytest.mark.parametrize(
    ("own", "forwards", "has_own", "shown"),
    [
        (OWN, False, True, REPLACED),
        (OWN, False, False, REPLACED),
        (OWN, True, True, KEPT),
        (OWN, True, False, REPLACED),
        (OwnCredentials(), False, True, KEPT),
        (OwnCredentials(), True, False, KEPT),
    ],
)
def test_requests(
    own: OwnCredentials, forwards: bool, has_own: bool, shown: HttpCredentials
) -> None:
    policy = CredentialPolicy(own, forwards=forwards)
    assert policy.for_request(JOE, has_own=has_own) == shown
    assert policy.for_request(None, has_own=has_own) == HttpCredentials()


@pytest.mark.parametrize(
    ("identity", "has_own", "shows_certificate", "shown"),
    [
        (JOE, True, False, KEPT),
        (JOE, True, True, KEPT),
        (BY_CERTIFICATE, True, False, KEPT),
        (BY_CERTIFICATE, False, False, None),
        (None, False, False, HttpCredentials()),
        (None, False, True, None),
        (None, True, True, HttpCredentials()),
    ],
)
def test_websockets_never_get_the_proxys_credentials(
    identity: Identity | None,
    has_own: bool,
    shows_certificate: bool,
    shown: HttpCredentials | None,
) -> None:
    for own in (OWN, OwnCredentials()):
        policy = CredentialPolicy(own, forwards=False)
        found = policy.for_websocket(identity, has_own=has_own, shows_certificate=shows_certificate)
        assert found == shown
