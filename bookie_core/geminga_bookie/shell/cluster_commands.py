"""`acceptloss`, `bookieinfo` and the cookie commands of `geminga bookieshell` (spec BK-11)."""

from __future__ import annotations

from pathlib import Path

import click

from geminga_bookie.autorecovery.shell import cluster_options, run_on_cluster

_COOKIE_FILE = click.option(
    "-cf",
    "--cookie-file",
    "cookie_file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The cookie's file.",
)
_BOOKIE_ID = click.argument("bookie_id", metavar="<bookie-id>")


@click.command()
@cluster_options
def bookieinfo(config_file: Path | None, store_uri: str | None) -> None:
    """Print how much room the disks of the bookies have."""
    from geminga_bookie.shell.free_space import bookie_info

    run_on_cluster(config_file, store_uri, bookie_info)


@click.command("cookie_get")
@cluster_options
@_BOOKIE_ID
def cookie_get(config_file: Path | None, store_uri: str | None, bookie_id: str) -> None:
    """Print a bookie's cookie."""
    from geminga_bookie.shell import cookies

    run_on_cluster(config_file, store_uri, lambda at: cookies.get(at, bookie_id))


@click.command("cookie_create")
@cluster_options
@_COOKIE_FILE
@_BOOKIE_ID
def cookie_create(
    config_file: Path | None, store_uri: str | None, cookie_file: Path, bookie_id: str
) -> None:
    """Upload a file as the cookie of a bookie that has none."""
    from geminga_bookie.shell import cookies

    run_on_cluster(config_file, store_uri, lambda at: cookies.create(at, bookie_id, cookie_file))


@click.command("cookie_update")
@cluster_options
@_COOKIE_FILE
@_BOOKIE_ID
def cookie_update(
    config_file: Path | None, store_uri: str | None, cookie_file: Path, bookie_id: str
) -> None:
    """Upload a file instead of a bookie's cookie."""
    from geminga_bookie.shell import cookies

    run_on_cluster(config_file, store_uri, lambda at: cookies.update(at, bookie_id, cookie_file))


@click.command("cookie_delete")
@cluster_options
@_BOOKIE_ID
def cookie_delete(config_file: Path | None, store_uri: str | None, bookie_id: str) -> None:
    """Delete a bookie's cookie."""
    from geminga_bookie.shell import cookies

    run_on_cluster(config_file, store_uri, lambda at: cookies.delete(at, bookie_id))


@click.command("cookie_generate")
@cluster_options
@click.option("-j", "--journal-dirs", "journal_dirs", required=True, help="Journal directories.")
@click.option("-l", "--ledger-dirs", "ledger_dirs", required=True, help="Ledger directories.")
@click.option("-ix", "--index-dirs", "index_dirs", help="Index directories.")
@click.option("-i", "--instance-id", "instance_id", help="The cluster's id, if it is another one.")
@click.option(
    "-o",
    "--output-file",
    "output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="Where to write it.",
)
@_BOOKIE_ID
def cookie_generate(
    config_file: Path | None,
    store_uri: str | None,
    journal_dirs: str,
    ledger_dirs: str,
    index_dirs: str | None,
    instance_id: str | None,
    output: Path,
    bookie_id: str,
) -> None:
    """Write a cookie into a file."""
    from geminga_bookie.shell import cookies

    run_on_cluster(
        config_file,
        store_uri,
        lambda at: cookies.generate(
            at, bookie_id, journal_dirs, ledger_dirs, index_dirs, instance_id, output
        ),
    )


@click.command()
@cluster_options
@click.option("-l", "-ledgerid", "--ledgerid", "ledger_id", type=click.IntRange(0), required=True)
@click.option("-f", "-force", "--force", is_flag=True, help="Don't ask.")
def acceptloss(
    config_file: Path | None, store_uri: str | None, ledger_id: int, force: bool
) -> None:
    """Give up the entries of a ledger that all bookies in question may have lost, so that the rest
    can be read. Not a command of Apache's.
    """
    from geminga_bookie.shell.loss import accept_loss

    if not force:
        click.confirm(f"Give up what is lost of ledger {ledger_id} for ever?", abort=True)
    run_on_cluster(config_file, store_uri, lambda at: accept_loss(at, ledger_id))


COMMANDS = (
    acceptloss,
    bookieinfo,
    cookie_get,
    cookie_create,
    cookie_update,
    cookie_delete,
    cookie_generate,
)
"""Those that `bookieshell` takes over."""
