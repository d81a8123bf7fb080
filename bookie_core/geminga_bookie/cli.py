"""`geminga bookieshell`: inspects a bookie's ledgers (spec BK-11).

Commands and options are those of BookKeeper's `bookkeeper shell`. Those here read the data
directory of a standalone and never write, so they work beside a running one, but may be some
seconds behind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminga_bookie.autorecovery import shell as recovery_commands
from geminga_bookie.autorecovery.shell import cluster_options, run_on_cluster
from geminga_bookie.shell import cluster_commands, local_commands
from geminga_bookie.shell.printing import ENTRY_FORMATS, LEDGER_ID_FORMATS, hex_lines
from geminga_bookie.shell.target import BOOKIE_NAME, ShellFailed, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from geminga_bookie.autorecovery.tools import Cluster
    from geminga_bookie.offline import OfflineBookie
    from geminga_protocol.pb.bookkeeper_metadata_pb2 import LedgerMetadataFormat
    from geminga_runtime.metadata.api import MetadataStore

    _Found = list[tuple[int, LedgerMetadataFormat]]

METADATA_NAME = "metadata.sqlite"
_LAST = (1 << 63) - 1


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("data"),
    show_default=True,
    help="Data directory of a standalone.",
)
@click.option(
    "-conf",
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Properties file of a cluster's bookie (bookkeeper.conf), instead.",
)
@click.option(
    "-ledgeridformat",
    "--ledgeridformat",
    "ledger_id_format",
    type=click.Choice(LEDGER_ID_FORMATS),
    default="long",
    help="How commands on files print ledger ids.",
)
@click.option(
    "-entryformat",
    "--entryformat",
    "entry_format",
    type=click.Choice(ENTRY_FORMATS),
    default="string",
    help="How readjournal and readlog print payloads.",
)
@click.pass_context
def bookieshell(
    context: click.Context,
    data_dir: Path,
    config_file: Path | None,
    ledger_id_format: str,
    entry_format: str,
) -> None:
    """Inspect the ledgers and files of a bookie, or the bookies of a cluster."""
    context.obj = Target(data_dir, config_file, ledger_id_format, entry_format)


for _module in (recovery_commands, cluster_commands, local_commands):
    for _command in _module.COMMANDS:
        bookieshell.add_command(_command)


@bookieshell.command()
@click.option("-meta", "--meta", "with_metadata", is_flag=True, help="Print metadata too.")
@click.option("-bookieid", "--bookieid", help="Only ledgers with that bookie in an ensemble.")
@cluster_options
@click.pass_obj
def listledgers(
    target: Target,
    config_file: Path | None,
    store_uri: str | None,
    with_metadata: bool,
    bookieid: str | None,
) -> None:
    """List the ledgers that metadata knows."""
    for ledger_id, metadata in _find_metadata(target, config_file, store_uri, None):
        members = {member for segment in metadata.segment for member in segment.ensembleMember}
        if bookieid is not None and bookieid not in members:
            continue
        click.echo(f"ledgerID: {ledger_id}")
        if with_metadata:
            _print_metadata(metadata)


@bookieshell.command()
@click.option("-l", "-ledgerid", "--ledgerid", "ledger_id", type=click.IntRange(0), required=True)
@cluster_options
@click.pass_obj
def ledgermetadata(
    target: Target, config_file: Path | None, store_uri: str | None, ledger_id: int
) -> None:
    """Print a ledger's metadata."""
    metadata = _only(ledger_id, _find_metadata(target, config_file, store_uri, ledger_id))
    click.echo(f"ledgerID: {ledger_id}")
    _print_metadata(metadata)


@bookieshell.command()
@click.option("-l", "-ledgerid", "--ledgerid", "ledger_id", type=click.IntRange(0), required=True)
@click.option("-fe", "-firstentryid", "--firstentryid", "first", type=click.IntRange(0), default=0)
@click.option("-le", "-lastentryid", "--lastentryid", "last", type=click.IntRange(-1), default=-1)
@click.option("-m", "-msg", "--msg", "with_payload", is_flag=True, help="Print payloads.")
@click.option(
    "-r",
    "-force-recovery",
    "--force-recovery",
    "recovers",
    is_flag=True,
    help="Close an open ledger of a cluster first.",
)
@click.option("-b", "-bookie", "--bookie", "bookie_id", help="Read of this bookie of a cluster.")
@cluster_options
@click.pass_obj
def readledger(
    target: Target,
    config_file: Path | None,
    store_uri: str | None,
    ledger_id: int,
    first: int,
    last: int,
    with_payload: bool,
    recovers: bool,
    bookie_id: str | None,
) -> None:
    """Print a ledger's entries. Exit code 1 if one of them can't be read."""
    if store_uri is not None or config_file is not None or target.config_file is not None:
        from geminga_bookie.shell.ledger_reading import EntryRange, read_ledger

        form = target.entry_format if with_payload else None
        wanted = EntryRange(
            ledger_id, first, last, form, target.ledger_id_format, recovers, bookie_id
        )
        run_on_cluster(config_file, store_uri, lambda at: read_ledger(at, wanted))
        return
    if recovers or bookie_id is not None:
        raise click.UsageError("-force-recovery and -bookie are for a cluster's ledgers")
    _read_files(target, ledger_id, first, _LAST if last < 0 else last, with_payload)


def _read_files(target: Target, ledger_id: int, first: int, last: int, with_payload: bool) -> None:
    """Of a standalone."""
    from geminga_bookie.errors import BookkeeperError
    from geminga_protocol.bookkeeper.digest import Digest, DigestError, header

    metadata = _only(ledger_id, _ask_file(target.data_dir, ledger_id))
    digest = Digest(metadata.digestType or 2, metadata.password)
    failed = False
    with _offline(target.data_dir) as bookie:
        for entry_id, packet in bookie.entries(ledger_id, first, last):
            click.echo(f"--------- Lid={ledger_id}, Eid={entry_id} ---------")
            try:
                if isinstance(packet, BookkeeperError):
                    raise packet
                payload = digest.payload(ledger_id, entry_id, packet)
            except (BookkeeperError, DigestError) as error:
                click.echo(f"Error:          {error}")
                failed = True
                continue
            click.echo("Type:           DATA")
            click.echo(f"LastConfirmed:  {header(packet)[2]}")
            click.echo(f"Length:         {len(payload)}")
            if with_payload:
                click.echo("Data:")
                for line in hex_lines(bytes(payload)):
                    click.echo(line)
    if failed:
        sys.exit(1)


@contextmanager
def _offline(data_dir: Path) -> Iterator[OfflineBookie]:
    from geminga_bookie.errors import DataDirError
    from geminga_bookie.offline import OfflineBookie
    from geminga_bookie.options import BookieOptions

    try:
        bookie = OfflineBookie(BookieOptions.in_directory(data_dir / BOOKIE_NAME))
    except (DataDirError, OSError) as error:
        raise ShellFailed(str(error)) from error
    try:
        yield bookie
    finally:
        bookie.close()


def _only(ledger_id: int, found: _Found) -> LedgerMetadataFormat:
    if not found:
        raise ShellFailed(f"no ledger {ledger_id} in the metadata store")
    return found[0][1]


def _find_metadata(
    target: Target, config_file: Path | None, store_uri: str | None, ledger_id: int | None
) -> _Found:
    """Of one ledger or all: of a cluster, if one is named, else of a standalone."""
    if store_uri is None and config_file is None and target.config_file is None:
        return _ask_file(target.data_dir, ledger_id)
    found: _Found = []

    async def ask(at: Cluster) -> int:
        from geminga_bookie.autorecovery.tools import ToolFailed
        from geminga_protocol.errors import RemoteProtocolError

        try:
            found.extend(await _read(at.store, ledger_id))
        except RemoteProtocolError as error:
            raise ToolFailed(str(error)) from error
        return 0

    run_on_cluster(config_file, store_uri, ask)
    return found


async def _read(store: MetadataStore, ledger_id: int | None) -> _Found:
    """Raises RemoteProtocolError, MetadataError."""
    from geminga_bookie.client.metadata_store import LedgerMetadataStore
    from geminga_protocol.bookkeeper import ledger_metadata, paths

    found = []
    if ledger_id is None:
        known = await _ledger_paths(store, paths.ROOT)
    else:
        known = [await LedgerMetadataStore(store).path(ledger_id)]
    for path in known:
        node = await store.get(path)
        number = paths.ledger_id(path)
        if node is not None and number is not None:
            found.append((number, ledger_metadata.parse(node.value)))
    return found


def _ask_file(data_dir: Path, ledger_id: int | None) -> _Found:
    import trio

    from geminga_protocol.errors import RemoteProtocolError
    from geminga_runtime.metadata.api import MetadataError
    from geminga_runtime.metadata.sqlite import SqliteMetadataStore

    async def ask() -> _Found:
        store = await SqliteMetadataStore.open(data_dir / METADATA_NAME, read_only=True)
        try:
            return await _read(store, ledger_id)
        finally:
            await store.aclose()

    try:
        return trio.run(ask)
    except (MetadataError, RemoteProtocolError) as error:
        raise ShellFailed(str(error)) from error


async def _ledger_paths(store: MetadataStore, path: str) -> Sequence[str]:
    """Paths of ledgers beneath a node, by id."""
    from geminga_protocol.bookkeeper import paths

    found = []
    for name in await store.children(path):
        child = f"{path}/{name}"
        if paths.ledger_id(child) is not None:
            found.append(child)
        elif name.isdigit():
            found += await _ledger_paths(store, child)
    return found


def _print_metadata(metadata: LedgerMetadataFormat) -> None:
    from geminga_protocol.pb.bookkeeper_metadata_pb2 import LedgerMetadataFormat as Format

    click.echo(
        f"LedgerMetadata{{ensembleSize={metadata.ensembleSize}, "
        f"writeQuorumSize={metadata.quorumSize}, ackQuorumSize={metadata.ackQuorumSize}, "
        f"state={Format.State.Name(metadata.state)}, length={metadata.length}, "
        f"lastEntryId={metadata.lastEntryId}, "
        f"digestType={Format.DigestType.Name(metadata.digestType)}, "
        f"ensembles={{{_ensembles(metadata)}}}, customMetadata={{{_custom(metadata)}}}}}"
    )


def _ensembles(metadata: LedgerMetadataFormat) -> str:
    return ", ".join(
        f"{segment.firstEntryId}=[{', '.join(segment.ensembleMember)}]"
        for segment in metadata.segment
    )


def _custom(metadata: LedgerMetadataFormat) -> str:
    return ", ".join(
        f"{pair.key}={pair.value.decode('utf-8', 'replace')}" for pair in metadata.customMetadata
    )
