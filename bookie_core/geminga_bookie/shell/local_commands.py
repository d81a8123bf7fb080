"""Commands of `geminga bookieshell` on one bookie's files, named as those of Apache's shell (spec
BK-11). Heavy imports come after the arguments are checked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminga_bookie.shell.target import ShellFailed, Target, target_of

if TYPE_CHECKING:
    from geminga_bookie.host import Host
    from geminga_bookie.options import BookieOptions

_CONFIG = click.option(
    "-conf",
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The bookie's properties file (bookkeeper.conf).",
)
_MESSAGE = click.option("-m", "-msg", "--msg", "with_payload", is_flag=True, help="Print payloads.")
_VERBOSE = click.option("-v", "--verbose", is_flag=True, help="Print each ledger.")


def _exit(is_good: bool) -> None:
    if not is_good:
        sys.exit(1)


def _error(line: str) -> None:
    click.echo(line, err=True)


def _ledger_id(target: Target, text: str | None) -> int:
    """-1 without one. Raises ShellFailed."""
    from geminga_bookie.shell.printing import ledger_number

    try:
        return -1 if text is None else ledger_number(text, target.ledger_id_format)
    except ValueError:
        raise ShellFailed(f"invalid ledger id {text}") from None


@click.command()
@_CONFIG
@click.pass_context
def lastmark(context: click.Context, config_file: Path | None) -> None:
    """Print up to where each journal is in entry logs."""
    options = target_of(context).options(config_file)
    from geminga_bookie.shell.journals import last_marks
    from geminga_bookie.storage.disk import OsDisk

    last_marks(options, OsDisk(), click.echo)


@click.command()
@_CONFIG
@click.option("-txn", "--journal", "journals", is_flag=True, help="Files of journals.")
@click.option("-log", "--entrylog", "logs", is_flag=True, help="Entry logs.")
@click.option("-idx", "--index", "indexes", is_flag=True, help="Files of indexes.")
@click.pass_context
def listfilesondisc(
    context: click.Context, config_file: Path | None, journals: bool, logs: bool, indexes: bool
) -> None:
    """List the files of a bookie."""
    options = target_of(context).options(config_file)
    from geminga_bookie.shell.files import list_files
    from geminga_bookie.storage.disk import OsDisk

    list_files(options, OsDisk(), click.echo, journals=journals, logs=logs, indexes=indexes)


@click.command()
@_CONFIG
@click.option(
    "-dir",
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Journal directory, if there are several.",
)
@_MESSAGE
@click.argument("journal", metavar="<journal_id | journal_file_name>")
@click.pass_context
def readjournal(
    context: click.Context,
    config_file: Path | None,
    directory: Path | None,
    with_payload: bool,
    journal: str,
) -> None:
    """Print a journal's entries. Exit code 1 if a part of it can't be read."""
    target = target_of(context)
    options = target.options(config_file)
    from geminga_bookie.shell.journals import JournalPrinter, find_journal
    from geminga_bookie.storage.disk import OsDisk

    disk = OsDisk()
    found = find_journal(options, disk, journal, directory)
    form = target.entry_format if with_payload else None
    printer = JournalPrinter(click.echo, _error, target.ledger_id_format, form)
    _exit(printer.print(disk, *found))


@click.command()
@_CONFIG
@_MESSAGE
@click.option("-l", "-ledgerid", "--ledgerid", "ledger", help="Only this ledger.")
@click.option("-e", "-entryid", "--entryid", "entry_id", type=click.IntRange(-1), default=-1)
@click.option("-sp", "-startpos", "--startpos", "start", type=click.IntRange(-1), default=-1)
@click.option("-ep", "-endpos", "--endpos", "end", type=click.IntRange(-1), default=-1)
@click.argument("log", metavar="<entry_log_id | entry_log_file_name>")
@click.pass_context
def readlog(
    context: click.Context,
    config_file: Path | None,
    with_payload: bool,
    ledger: str | None,
    entry_id: int,
    start: int,
    end: int,
    log: str,
) -> None:
    """Print an entry log's entries. Exit code 1 if one of them can't be read."""
    target = target_of(context)
    options = target.options(config_file)
    if 0 <= end < start:
        raise ShellFailed(
            "StartPosition of the range should be lesser than or equal to EndPosition"
        )
    from geminga_bookie.shell.entry_logs import LogPrinter, Wanted, find_log
    from geminga_bookie.storage.disk import OsDisk

    disk = OsDisk()
    wanted = Wanted(_ledger_id(target, ledger), entry_id, start, end)
    path, log_id = find_log(options, disk, log)
    form = target.entry_format if with_payload else None
    printer = LogPrinter(click.echo, _error, target.ledger_id_format, form)
    _exit(printer.print(disk, path, log_id, wanted))


@click.command()
@_CONFIG
@click.argument("log", metavar="<entry_log_id | entry_log_file_name>")
@click.pass_context
def readlogmetadata(context: click.Context, config_file: Path | None, log: str) -> None:
    """Print how much of each ledger is in an entry log."""
    target = target_of(context)
    options = target.options(config_file)
    from geminga_bookie.shell.entry_logs import find_log, print_metadata
    from geminga_bookie.storage.disk import OsDisk

    disk = OsDisk()
    print_metadata(disk, *find_log(options, disk, log), target.ledger_id_format, click.echo)


def _run(options: BookieOptions, act: Callable[[Host, BookieOptions], bool | None]) -> None:
    """Work in a thread, as a bookie does; exit with 1 if it returns False."""
    import trio

    from geminga_bookie.host import Host

    async def run() -> bool | None:
        host = Host()
        return await host.workers.run(act, host, options)

    _exit(trio.run(run) is not False)


@click.command("rebuild-db-ledger-locations-index")
@_CONFIG
@click.pass_context
def rebuild_db_ledger_locations_index(context: click.Context, config_file: Path | None) -> None:
    """Write a stopped bookie's index of entries anew, from its entry logs."""
    options = target_of(context).options(config_file)
    from geminga_bookie.shell.indexes import rebuild_locations

    _run(options, partial(rebuild_locations, say=click.echo))


@click.command("rebuild-db-ledgers-index")
@_CONFIG
@_VERBOSE
@click.pass_context
def rebuild_db_ledgers_index(
    context: click.Context, config_file: Path | None, verbose: bool
) -> None:
    """Write a stopped bookie's index of ledgers anew; all of them are fenced."""
    target = target_of(context)
    options = target.options(config_file)
    from geminga_bookie.shell.indexes import rebuild_ledgers

    form = target.ledger_id_format
    _run(options, partial(rebuild_ledgers, say=click.echo, ledger_form=form, verbose=verbose))


@click.command("check-db-ledgers-index")
@_CONFIG
@_VERBOSE
@click.pass_context
def check_db_ledgers_index(context: click.Context, config_file: Path | None, verbose: bool) -> None:
    """Read a stopped bookie's index of ledgers."""
    target = target_of(context)
    options = target.options(config_file)
    from geminga_bookie.shell.indexes import check_ledgers

    form = target.ledger_id_format
    _run(options, partial(check_ledgers, say=click.echo, ledger_form=form, verbose=verbose))


@click.command()
@_CONFIG
@click.pass_context
def localconsistencycheck(context: click.Context, config_file: Path | None) -> None:
    """Read every entry of a stopped bookie. Exit code 1 if one of them is damaged or missing."""
    target = target_of(context)
    options = target.options(config_file)
    from geminga_bookie.shell.indexes import check_consistency

    form = target.ledger_id_format
    _run(options, partial(check_consistency, say=click.echo, ledger_form=form))


COMMANDS = (
    lastmark,
    listfilesondisc,
    readjournal,
    readlog,
    readlogmetadata,
    rebuild_db_ledger_locations_index,
    rebuild_db_ledgers_index,
    check_db_ledgers_index,
    localconsistencycheck,
)
"""Those that `bookieshell` takes over."""
