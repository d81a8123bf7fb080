"""Apache Pulsar's proxy before a broker, on free ports."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from compat_tests.apache.jars import java_command, tools_jars
from compat_tests.missing import APACHE, skipped_without
from compat_tests.processes import ServerProcess, free_port, spawn, start_geminga, wait_until
from compat_tests.secured import Keys, start_proxy

_STARTER = "org.apache.pulsar.proxy.server.ProxyServiceStarter"


class Proxies(NamedTuple):
    """One of each before one broker of ours, and the keys of clients' tokens."""

    apache: ServerProcess
    ours: ServerProcess
    keys: Keys


@contextmanager
def both_proxies(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    apaches: Mapping[str, str] | None = None,
) -> Iterator[Proxies]:
    """Both with these settings of proxy.conf, and Apache's with some more. Skips without it."""
    keys = Keys(folder / "keys")
    with ExitStack() as stack:
        broker = start_geminga(folder / "data")
        stack.callback(broker.kill)
        every = {
            "brokerServiceURL": broker.service_url,
            "brokerWebServiceURL": broker.web_url,
            "clusterName": "standalone",
            "authenticationEnabled": "true",
            "authenticateMetricsEndpoint": "false",
            "authenticationProviders": (
                "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
            ),
            "tokenSecretKey": keys.secret_file.as_uri(),
            **(settings or {}),
        }
        with skipped_without(APACHE):
            apache = start_apache_proxy(folder / "apache", {**every, **(apaches or {})})
        stack.callback(apache.kill)
        ours = start_proxy(folder / "ours", every)
        stack.callback(ours.kill)
        yield Proxies(apache, ours, keys)


def start_apache_proxy(
    folder: Path, settings: Mapping[str, str], *, timeout_s: float = 120.0
) -> ServerProcess:
    """The proxy with these settings of proxy.conf, once anybody may read its metrics. Raises
    PeerMissing, StartError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ports = free_port(), free_port()
    every = {
        "bindAddress": "127.0.0.1",
        "servicePort": str(ports[0]),
        "webServicePort": str(ports[1]),
        "brokerProxyAllowedTargetPorts": "*",
        "brokerProxyAllowedIPAddresses": "127.0.0.1",
        **settings,
    }
    config, log_path = folder / "proxy.conf", folder / "apache-proxy.log"
    config.write_text("".join(f"{key}={value}\n" for key, value in every.items()))
    command = java_command(_STARTER, ["--config", str(config)], heap_mb=256)
    at = command.index("-cp") + 1
    command[at] += f":{tools_jars()}/*"
    server = ServerProcess(
        kind="apache-proxy",
        process=spawn(command, log_path=log_path, cwd=folder),
        service_url=f"pulsar://127.0.0.1:{ports[0]}",
        web_url=f"http://127.0.0.1:{ports[1]}",
        data_dir=folder,
        log_path=log_path,
    )

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{server.web_url}/metrics/", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        wait_until(answers, server.process, log_path, timeout_s=timeout_s)
    except BaseException:
        server.kill()
        raise
    return server
