"""Names of files, and `listfilesondisc` (spec BK-11; Apache's ListFilesOnDiscCommand)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from geminga_bookie.options import BookieOptions
from geminga_bookie.shell.target import ShellFailed
from geminga_bookie.storage import journal_files
from geminga_bookie.storage.data_dirs import index_directory
from geminga_bookie.storage.disk import Disk
from geminga_bookie.storage.entry_logs import files as entry_logs

Say = Callable[[str], None]


def list_files(
    options: BookieOptions, disk: Disk, say: Say, *, journals: bool, logs: bool, indexes: bool
) -> None:
    """Print the paths of the files of each kind; nothing if none is asked for, as Apache's."""
    if journals:
        say("--------- Printing the list of Journal Files ---------")
        _print(disk, options.journal_dirs, journal_files.SUFFIX, say)
        say("")
    if logs:
        say("--------- Printing the list of EntryLog/Ledger Files ---------")
        _print(disk, options.ledger_dirs, entry_logs.SUFFIX, say)
        say("")
    if indexes:
        say("--------- Printing the list of Index Files ---------")
        found = [index_directory(options, number) for number in range(len(options.ledger_dirs))]
        _print(disk, found, "", say)


def file_number(wanted: str, suffix: str, kind: str) -> int:
    """Of a file that is named by its number, in decimal, or by its name. Raises ShellFailed."""
    if wanted.isascii() and wanted.isdigit():
        return int(wanted)
    name = Path(wanted)
    try:
        if name.suffix != suffix:
            raise ValueError
        return int(name.stem, 16)
    except ValueError:
        raise ShellFailed(f"invalid {kind} file name {wanted}") from None


def _print(disk: Disk, directories: Sequence[Path], suffix: str, say: Say) -> None:
    for directory in directories:
        for name in disk.names(directory):
            if name.endswith(suffix):
                say(str((directory / name).resolve()))
