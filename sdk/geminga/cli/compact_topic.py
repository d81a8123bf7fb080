"""`geminga compact-topic`: compact a topic now and wait for the end (spec OP-01; Apache's
CompactorTool, with its options). The topic's broker does the work, as it does by itself above a
threshold; Apache's tool takes the messages out of the broker and writes the ledger itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from geminga.cli.admin.calls import Calls, Place

POLL_S = 0.5
_RUNNING = "RUNNING"


@click.command("compact-topic", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-t", "--topic", required=True, help="The topic; of a partitioned one each part.")
@click.option(
    "-c",
    "--broker-conf",
    "config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The broker's configuration: where it serves, and brokerClient... keys.",
)
@click.option(
    "--admin-url", metavar="URL", help="Web service, instead of the one that the file tells."
)
@click.option("--auth-plugin", help="token, tls, basic, oauth2, or Apache's Java class.")
@click.option("--auth-params", help="token:..., file:///..., as the plug-in takes it.")
def compact_topic(
    topic: str,
    config: Path | None,
    admin_url: str | None,
    auth_plugin: str | None,
    auth_params: str | None,
) -> None:
    """Compact a topic: keep the last message of each key, and wait until it is done."""
    from geminga.errors import GemingaError, InvalidArgumentError

    place = _place(config) if config is not None else Place()
    place = replace(
        place,
        admin_url=admin_url or place.admin_url,
        auth_plugin=auth_plugin or place.auth_plugin,
        auth_params=auth_params or place.auth_params,
    )
    try:
        _compact(Calls(place), topic)
    except InvalidArgumentError as error:
        raise click.UsageError(str(error)) from error
    except GemingaError as error:
        raise click.ClickException(str(error)) from error


def _place(config: Path) -> Place:
    """Where the broker of a `broker.conf` serves, and how it is spoken to."""
    from geminga_runtime.settings import ConfigError, gather

    try:
        keys = {key: value for key, (value, _) in gather(config, {}).items()}
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    host = keys.get("advertisedAddress") or "localhost"
    is_secure = keys.get("brokerClientTlsEnabled", "").lower() == "true"
    port = keys.get("webServicePortTls") or "8443" if is_secure else keys.get("webServicePort")
    return Place(
        admin_url=f"http{'s' if is_secure else ''}://{host}:{port or 8080}",
        auth_plugin=keys.get("brokerClientAuthenticationPlugin") or None,
        auth_params=keys.get("brokerClientAuthenticationParameters") or None,
        allow_insecure=keys.get("tlsAllowInsecureConnection", "").lower() == "true" or None,
        trust_certs=keys.get("brokerClientTrustCertsFilePath") or None,
        certificate=keys.get("brokerClientCertificateFilePath") or None,
        key=keys.get("brokerClientKeyFilePath") or None,
    )


def _compact(calls: Calls, topic: str) -> None:
    """Begin all, then wait for each: brokers work side by side."""
    from geminga._admin.families.topics import Topics
    from geminga.admin import ConflictError
    from geminga.cli.admin.table.topics import full_name

    metadata = calls.call(Topics.get_partitions, topic=topic)
    count = metadata.get("partitions", 0) if isinstance(metadata, Mapping) else 0
    name = full_name(topic)
    names = [f"{name}-partition-{number}" for number in range(count)] if count else [name]
    for each in names:
        try:
            calls.call(Topics.compact, topic=each)
        except ConflictError:
            click.echo(f"{each} is being compacted already: its end is waited for")
    for each in names:
        while (status := _status(calls, each)).get("status") == _RUNNING:
            time.sleep(POLL_S)
        if status.get("status") != "SUCCESS":
            why = status.get("lastError") or "its broker stopped, or unloaded it, meanwhile"
            raise click.ClickException(f"{each} was not compacted: {why}")
        click.echo(f"{each} is compacted")


def _status(calls: Calls, topic: str) -> Mapping[str, object]:
    from geminga._admin.families.topics import Topics

    status = calls.call(Topics.compaction_status, topic=topic)
    return status if isinstance(status, Mapping) else {}
