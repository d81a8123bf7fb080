"""Commands of `geminga bookieshell` on a whole cluster, named as those of Apache's shell (BK-11).

Heavy imports come after the arguments are checked.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminga_bookie.shell.target import config_of, unused_keys_unsaid

if TYPE_CHECKING:
    from geminga_bookie.autorecovery.tools import Cluster

Act = Callable[["Cluster"], Awaitable[int]]


class ClusterFailed(click.ClickException):
    """One sentence on stderr; exit code 2."""

    exit_code = 2


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """How a command finds the cluster."""
    command = click.option(
        "--metadata-store",
        "store_uri",
        help="zk+hierarchical://HOSTS/ledgers, or zk:HOSTS/PATH (metadataServiceUri).",
    )(command)
    return click.option(
        "-conf",
        "--config",
        "config_file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Properties file with keys of Apache's bookkeeper.conf.",
    )(command)


def run_on_cluster(config_file: Path | None, store_uri: str | None, act: Act) -> None:
    """Exit with the code of the action. Raises ClusterFailed."""
    import os

    import trio

    from geminga_bookie.autorecovery.config import load_config
    from geminga_bookie.autorecovery.tools import ToolFailed, on_cluster
    from geminga_runtime.metadata.api import MetadataError
    from geminga_runtime.metadata.zookeeper_url import uri_of_ledgers
    from geminga_runtime.settings import ConfigError

    uri = uri_of_ledgers(store_uri)
    try:
        given = {} if uri is None else {"metadataServiceUri": uri}
        with unused_keys_unsaid():
            config = load_config(config_of(config_file), os.environ, given)
        code = trio.run(on_cluster, config, act)
    except (ConfigError, MetadataError, ToolFailed) as error:
        raise ClusterFailed(str(error)) from error
    if code:
        sys.exit(code)


@click.command()
@cluster_options
@click.option(
    "-rw", "-readwrite", "--readwrite", is_flag=True, help="Bookies that take new entries."
)
@click.option("-ro", "-readonly", "--readonly", is_flag=True, help="Bookies that only serve reads.")
def listbookies(
    config_file: Path | None, store_uri: str | None, readwrite: bool, readonly: bool
) -> None:
    """List the registered bookies."""
    from geminga_bookie.autorecovery import tools

    both = readwrite == readonly
    run_on_cluster(
        config_file,
        store_uri,
        lambda at: tools.list_bookies(at, writable=readwrite or both, readonly=readonly or both),
    )


@click.command()
@cluster_options
@click.option("-missingreplica", "--missingreplica", "missing", help="Ledgers that lack this one.")
@click.option(
    "-excludingmissingreplica", "--excludingmissingreplica", "excluded", help="All but those."
)
@click.option("-printmissingreplica", "--printmissingreplica", "with_replicas", is_flag=True)
@click.option(
    "-printreplicationworkerid", "--printreplicationworkerid", "with_worker", is_flag=True
)
@click.option(
    "-c", "-onlydisplayledgercount", "--onlydisplayledgercount", "only_count", is_flag=True
)
def listunderreplicated(
    config_file: Path | None,
    store_uri: str | None,
    missing: str | None,
    excluded: str | None,
    with_replicas: bool,
    with_worker: bool,
    only_count: bool,
) -> None:
    """List the ledgers that are marked for auto-recovery."""
    from geminga_bookie.autorecovery import tools

    shown = tools.Shown(missing, excluded, with_replicas, with_worker, only_count)
    run_on_cluster(config_file, store_uri, lambda at: tools.list_underreplicated(at, shown))


@click.command()
@cluster_options
def whoisauditor(config_file: Path | None, store_uri: str | None) -> None:
    """Print the id of the auditor. Exit code 1 without one."""
    from geminga_bookie.autorecovery import tools

    run_on_cluster(config_file, store_uri, tools.who_is_auditor)


@click.command()
@cluster_options
@click.option("-e", "-enable", "--enable", is_flag=True, help="Let auditors and workers work.")
@click.option("-d", "-disable", "--disable", is_flag=True, help="Let them rest.")
def autorecovery(
    config_file: Path | None, store_uri: str | None, enable: bool, disable: bool
) -> None:
    """Turn auto-recovery of the cluster on or off; without an option, print which it is."""
    from geminga_bookie.autorecovery import tools

    if enable and disable:
        raise click.UsageError("only one of -e and -d can be given")
    wanted = enable if enable or disable else None
    run_on_cluster(config_file, store_uri, lambda at: tools.toggle(at, wanted))


@click.command()
@cluster_options
@click.option("-g", "-get", "--get", is_flag=True, help="Print it.")
@click.option("-s", "-set", "--set", "delay_s", type=click.IntRange(0), help="Set it, in seconds.")
def lostbookierecoverydelay(
    config_file: Path | None, store_uri: str | None, get: bool, delay_s: int | None
) -> None:
    """Print or set for how long a bookie that is away is not yet lost."""
    from geminga_bookie.autorecovery import tools

    if get == (delay_s is not None):
        raise click.UsageError("one of -g and -s must be given")
    run_on_cluster(config_file, store_uri, lambda at: tools.delay(at, delay_s))


@click.command()
@cluster_options
def triggeraudit(config_file: Path | None, store_uri: str | None) -> None:
    """Let the auditor look for lost bookies now."""
    from geminga_bookie.autorecovery import tools

    run_on_cluster(config_file, store_uri, tools.trigger_audit)


@click.command()
@cluster_options
@click.option("-bookieid", "--bookieid", required=True, help="A bookie that is stopped for good.")
def decommissionbookie(config_file: Path | None, store_uri: str | None, bookieid: str) -> None:
    """Wait until auto-recovery has replaced a stopped bookie in all ledgers; delete its cookie."""
    from geminga_bookie.autorecovery import tools

    run_on_cluster(config_file, store_uri, lambda at: tools.decommission(at, bookieid))


@click.command()
@cluster_options
@click.argument("bookieid")
@click.option(
    "-l", "-ledger", "--ledger", "ledger_id", type=click.IntRange(0), help="Only this ledger."
)
@click.option("-f", "-force", "--force", is_flag=True, help="Don't ask.")
@click.option("-q", "-query", "--query", is_flag=True, help="Only print which ledgers are there.")
@click.option(
    "-dr", "-dryrun", "--dryrun", "is_dry", is_flag=True, help="Only print what would be done."
)
@click.option(
    "-sku",
    "-skipUnrecoverableLedgers",
    "--skipUnrecoverableLedgers",
    "skips_failed",
    is_flag=True,
    help="Ledgers that can't be recovered are no failure.",
)
@click.option(
    "-rate",
    "-replicationRate",
    "--replicationRate",
    "bytes_per_s",
    type=click.IntRange(-1),
    help="Bound of what is copied, in bytes a second (replicationRateByBytes).",
)
@click.option(
    "-sk",
    "-skipOpenLedgers",
    "--skipOpenLedgers",
    "skip_open",
    is_flag=True,
    help="Leave them open.",
)
@click.option(
    "-d",
    "-deleteCookie",
    "--deleteCookie",
    "deletes_cookie",
    is_flag=True,
    help="Then delete the bookie's cookie, so that it can start anew.",
)
def recover(
    config_file: Path | None,
    store_uri: str | None,
    bookieid: str,
    ledger_id: int | None,
    force: bool,
    query: bool,
    is_dry: bool,
    skips_failed: bool,
    bytes_per_s: int | None,
    skip_open: bool,
    deletes_cookie: bool,
) -> None:
    """Replace a bookie, or several with commas between, in all ledgers, without auditor and
    workers; it should be stopped. Open ledgers are closed first. Exit code 1 if some ledger could
    not be completed.
    """
    from geminga_bookie.autorecovery import tools

    if deletes_cookie and (query or skip_open or ledger_id is not None):
        raise click.UsageError("-deleteCookie is for all ledgers: not with -q, -sk or -l")
    if not force and not query and not is_dry:
        click.confirm(f"Are you sure to recover all ledgers of {bookieid}?", abort=True)
    wanted = tools.Recovery(
        bookieid, ledger_id, query, skip_open, deletes_cookie, is_dry, skips_failed, bytes_per_s
    )
    run_on_cluster(config_file, store_uri, lambda at: tools.recover(at, wanted))


COMMANDS = (
    listbookies,
    listunderreplicated,
    whoisauditor,
    autorecovery,
    lostbookierecoverydelay,
    triggeraudit,
    decommissionbookie,
    recover,
)
"""Those that `bookieshell` takes over."""
