"""The manifests and the container file: Kubernetes takes them, their commands and settings are
those that there are, and what they name is there.
"""

from __future__ import annotations

import fnmatch
import logging
import re
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from compat_tests.processes import ROOT
from compat_tests.test_deploy import DEPLOY, OURS, parsed
from geminga_bookie.process.config import BookieConfig
from geminga_bookie.process.config import load_config as load_bookie
from geminga_broker.config import BrokerConfig, load_cluster_config
from geminga_proxy.config import load_config as load_proxy

FOLDER = DEPLOY / "kubernetes"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
VERSIONS = "1.32", "1.37"
LOADS = {"brokers": load_cluster_config, "bookies": load_bookie, "proxies": load_proxy}


def manifests() -> dict[str, dict[str, Any]]:
    """By kind and name."""
    found = {}
    for name in KUSTOMIZATION["resources"]:
        for each in yaml.safe_load_all((FOLDER / name).read_text()):
            found[f"{each['kind']}/{each['metadata']['name']}"] = each
    return found


MANIFESTS = manifests()
PODS: dict[str, dict[str, Any]] = {
    name: each["spec"]["template"]
    for name, each in MANIFESTS.items()
    if "template" in each.get("spec", {})
}
CONTAINERS: dict[str, dict[str, Any]] = {
    name: pod["spec"]["containers"][0]
    for name, pod in PODS.items()
    if pod["spec"]["containers"][0]["image"] == "geminga"
}


def settings(name: str) -> dict[str, str]:
    """Those of a ConfigMap, as the environment has them."""
    found: dict[str, str] = MANIFESTS[f"ConfigMap/{name}"]["data"]
    return found


def test_all_files_are_used() -> None:
    files = {path.name for path in FOLDER.iterdir()} - {"kustomization.yaml"}
    assert files == set(KUSTOMIZATION["resources"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [each["newTag"] for each in KUSTOMIZATION["images"]] == [project["version"]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_takes_it(name: str, version: str) -> None:
    kubernetes_validate.validate(MANIFESTS[name], version, strict=True)


@pytest.mark.parametrize("name", PODS)
def test_a_namespace_that_restricts_pods_takes_it(name: str) -> None:
    """And no container of ours writes anywhere but to its volumes."""
    pod = PODS[name]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        rights = container["securityContext"]
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert rights.get("readOnlyRootFilesystem") is (True if name in CONTAINERS else None)
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", CONTAINERS)
def test_commands_are_there(name: str) -> None:
    container = CONTAINERS[name]
    variables = {each["name"] for each in container.get("env", ())}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))) == variables
    assert parsed(container["args"])


@pytest.mark.parametrize("name", LOADS)
def test_settings_are_known(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = LOADS[name](None, settings(name), {})
    assert not caplog.records
    if isinstance(config, BrokerConfig):
        log = config.log
        assert (log.ensemble_size, log.write_quorum, log.ack_quorum) == (2, 2, 2)
    if isinstance(config, BookieConfig):
        (container,) = (each for each in CONTAINERS.values() if each["args"][0] == "bookie")
        mounts = [each["mountPath"] for each in container["volumeMounts"]]
        places = [Path(config.directories.journals), Path(config.directories.ledgers)]
        assert [str(place.parent) for place in places] == mounts


@pytest.mark.parametrize("name", [name for name in MANIFESTS if name.startswith("Service/")])
def test_a_service_has_pods_that_listen(name: str) -> None:
    service = MANIFESTS[name]["spec"]
    (pod,) = (each for each in PODS.values() if each["metadata"]["labels"] == service["selector"])
    container = pod["spec"]["containers"][0]
    listens = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert {each["name"]: each["port"] for each in service["ports"]} == listens
    probes = [each for kind, each in container.items() if kind.endswith("Probe")]
    asked = [each.get("httpGet", each.get("tcpSocket"))["port"] for each in probes]
    assert set(asked) <= listens.keys()


@pytest.mark.parametrize("name", [name for name in MANIFESTS if name.startswith("StatefulSet/")])
def test_a_stateful_set_has_its_service_and_volumes(name: str) -> None:
    """Its pods have names by it: those that brokers and bookies tell others."""
    spec = MANIFESTS[name]["spec"]
    service = spec["serviceName"]
    assert f"Service/{service}" in MANIFESTS
    container = spec["template"]["spec"]["containers"][0]
    volumes = {each["metadata"]["name"] for each in spec.get("volumeClaimTemplates", ())}
    assert {each["name"] for each in container.get("volumeMounts", ())} == volumes
    addresses = [each for each in container.get("args", ()) if "advertised" in each]
    assert all(each.endswith(f"$(POD).{service}") for each in addresses)


def test_stores_are_one() -> None:
    """The job makes the records of the store that all others have."""
    store = "zk:zookeeper:2181"
    job = parsed(CONTAINERS["Job/metadata"]["args"])
    assert (job["local_url"], job["configuration_url"]) == (store, store)
    for name in ("brokers", "proxies"):
        assert settings(name)["PULSAR_PREFIX_metadataStoreUrl"] == store
    ledgers = settings("bookies")["PULSAR_PREFIX_metadataServiceUri"]
    assert ledgers == "zk+hierarchical://zookeeper:2181/ledgers"
    assert settings("brokers")["PULSAR_PREFIX_clusterName"] == job["cluster"]


def test_the_image_has_all_that_it_is_built_from() -> None:
    """Debian and PyPI are all that it needs, and what it copies isn't left out."""
    text = (DEPLOY / "Dockerfile").read_text()
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"debian:13-slim"}
    assert 'ENTRYPOINT ["geminga"]' in text
    command = re.findall(r'"([^"]+)"', text[text.index("CMD [") :])
    assert parsed(command)["data_dir"].is_relative_to("/data")
    lines = (ROOT / ".dockerignore").read_text().split()
    copied = [line[1:] for line in lines if line.startswith("!")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [
        "pyproject.toml", project["project"]["readme"], *project["project"]["license-files"],
        "requirements/run.lock", *wheel["packages"],
    ]  # fmt: skip
    for path in needed:
        assert any(fnmatch.fnmatch(path, f"{each}*") for each in copied), path
    (zookeepers,) = re.findall(r"'(kazoo\S+)'", text)
    assert [zookeepers] == project["project"]["optional-dependencies"]["zk"]


def test_compose_builds_that_image() -> None:
    builds = [each["build"] for each in OURS.values()]
    assert builds == [{"context": "..", "dockerfile": "deploy/Dockerfile"}] * len(OURS)
