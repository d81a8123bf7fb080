"""How a broker uses bookies: Apache's keys reach the ledger client."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminga_bookie.client.api import ClientOptions, ReadOptions
from geminga_bookie.client.health import HealthOptions
from geminga_bookie.client.placement_rules import Isolation, PlacementOptions
from geminga_broker.config import load_cluster_config
from geminga_runtime.settings import ConfigError

TLS_WITHOUT_FILE = """
bookkeeperTLSClientAuthentication=true
bookkeeperTLSProviderFactoryClass=f
bookkeeperTLSTrustCertsFilePath=/no
"""


def written(path: Path, text: str) -> Path:
    file = path / "broker.conf"
    file.write_text(text)
    return file


def test_the_defaults_of_apaches_broker() -> None:
    bookies = load_cluster_config(None, {}).bookies
    assert bookies.timeout_s == 30
    assert bookies.placement() == PlacementOptions()
    assert bookies.health() == HealthOptions()
    assert bookies.client() == ClientOptions()
    assert bookies.reorder_reads


def test_each_key_counts(tmp_path: Path) -> None:
    text = """
        bookkeeperClientTimeoutInSeconds=7
        bookkeeperClientRackawarePolicyEnabled=false
        bookkeeperClientRegionawarePolicyEnabled=true
        bookkeeperClientMinNumRacksPerWriteQuorum=3
        bookkeeperClientEnforceMinNumRacksPerWriteQuorum=true
        reppRegionsToWrite=east;west;north
        reppMinimumRegionsForDurability=3
        reppEnableDurabilityEnforcementInReplace=false
        bookkeeperClientIsolationGroups=red, blue
        bookkeeperClientSecondaryIsolationGroups=green
        bookkeeperDiskWeightBasedPlacementEnabled=true
        bookkeeperClientGetBookieInfoIntervalSeconds=3600
        bookkeeperClientGetBookieInfoRetryIntervalSeconds=30
        bookkeeperClientHealthCheckEnabled=false
        bookkeeperClientHealthCheckIntervalSeconds=61
        bookkeeperClientHealthCheckErrorThresholdPerInterval=6
        bookkeeperClientHealthCheckQuarantineTimeInSeconds=1801
        bookkeeperClientQuarantineRatio=0.5
        bookkeeperClientReorderReadSequenceEnabled=false
        bookkeeperEnableStickyReads=false
        bookkeeperClientSpeculativeReadTimeoutInMillis=250
        bookkeeper_delayEnsembleChange=true
        bookkeeperUseV2WireProtocol=false
    """
    bookies = load_cluster_config(written(tmp_path, text), {}).bookies
    assert bookies.timeout_s == 7
    assert bookies.placement() == PlacementOptions(
        by_rack=False,
        by_region=True,
        min_racks=3,
        enforce_racks=True,
        regions=frozenset({"east", "west", "north"}),
        min_regions=3,
        enforce_regions_in_replace=False,
        isolation=Isolation(frozenset({"red", "blue"}), frozenset({"green"})),
        by_weight=True,
    )
    assert (bookies.weigh_interval_s, bookies.weigh_retry_s) == (3600, 30)
    assert bookies.health() == HealthOptions(False, 61, 6, 1801, 0.5)
    assert bookies.client() == ClientOptions(ReadOptions(False, 0.25), delay_change=True)
    assert not bookies.reorder_reads
    assert not bookies.connections(1 << 20).adds_by_v2
    assert load_cluster_config(written(tmp_path, ""), {}).bookies.connections(1 << 20).adds_by_v2


def test_authentication_at_bookies(tmp_path: Path) -> None:
    text = """
    bookkeeperClientAuthenticationPlugin=geminga_bookie.wire._tests.auth_plugin:client
    bookkeeperClientAuthenticationParametersName=word
    bookkeeperClientAuthenticationParameters=other
    """
    options = load_cluster_config(written(tmp_path, text), {}).bookies.connections(9000)
    assert options.auth is not None
    assert (options.auth.plugin_name, options.tls) == ("WordPlugin", None)
    assert (options.frame_bytes_max, options.add_timeout_s) == (9000, 30)
    usual = load_cluster_config(None, {}).bookies.connections(9000)
    assert (usual.auth, usual.tls) == (None, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("bookkeeperClientAuthenticationPlugin=org.x.Y", "^bookkeeperClientAuthenticationPlugin: "),
        (TLS_WITHOUT_FILE, "^bookkeeperTLSTrustCertsFilePath: /no"),
    ],
)
def test_wrong_authentication_names_its_key(tmp_path: Path, text: str, why: str) -> None:
    bookies = load_cluster_config(written(tmp_path, text), {}).bookies
    with pytest.raises(ConfigError, match=why):
        bookies.connections(9000)


def test_regions_that_are_too_few(tmp_path: Path) -> None:
    config = load_cluster_config(written(tmp_path, "reppRegionsToWrite=east"), {})
    with pytest.raises(ConfigError, match="names 1 regions"):
        config.bookies.placement()


def test_secondary_groups_alone_say_nothing(tmp_path: Path) -> None:
    text = "bookkeeperClientSecondaryIsolationGroups=green"
    config = load_cluster_config(written(tmp_path, text), {})
    assert config.bookies.placement().isolation == Isolation()


async def test_a_bookies_host_is_checked_if_asked_for(tmp_path: Path) -> None:
    text = "bookkeeperTLSClientAuthentication=true\nbookkeeperTLSProviderFactoryClass=f\n"
    for more, checked in (("", False), ("bookkeeper_tlsHostnameVerificationEnabled=true\n", True)):
        bookies = load_cluster_config(written(tmp_path, text + more), {}).bookies
        tls = bookies.connections(9000).tls
        assert tls is not None
        assert tls.current().check_hostname is checked
