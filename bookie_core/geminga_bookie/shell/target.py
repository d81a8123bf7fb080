"""What a command of the shell works on, and how it fails (spec BK-11). Imports nothing heavy."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from geminga_bookie.options import BookieOptions


@contextmanager
def unused_keys_unsaid() -> Iterator[None]:
    """A command of the shell reads a server's file, which has more than it needs: the server itself
    warns of keys that aren't used.
    """
    logger = logging.getLogger("geminga_runtime.settings")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


BOOKIE_NAME = "bookie"
"""A standalone's directory of its bookie."""


class ShellFailed(click.ClickException):
    """One sentence on stderr; exit code 2."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Target:
    """The options in front of a command's name, as Apache's shell has them."""

    data_dir: Path
    config_file: Path | None = None
    ledger_id_format: str = "long"
    entry_format: str = "string"

    def options(self, config_file: Path | None = None) -> BookieOptions:
        """The bookie whose files are meant: that of a configuration, else a standalone's. Raises
        ShellFailed if its directories hold no bookie.
        """
        from dataclasses import replace

        from geminga_bookie.errors import DataDirError
        from geminga_bookie.storage.data_dirs import COOKIE_NAME, Cookie, roles

        options = self._configured(config_file or self.config_file)
        cookie = None
        for _, directory in roles(options):
            path = directory / COOKIE_NAME
            try:
                cookie = Cookie.decode(path.read_bytes(), path)
            except FileNotFoundError:
                raise ShellFailed(f"{directory} holds no bookie") from None
            except (DataDirError, OSError) as error:
                raise ShellFailed(str(error)) from None
        assert cookie is not None
        return replace(
            options, bookie_id=cookie.bookie_id, cluster_id=cookie.cluster_id, may_be_new=False
        )

    def _configured(self, config_file: Path | None) -> BookieOptions:
        from geminga_bookie.options import BookieOptions
        from geminga_runtime.settings import ConfigError

        if config_file is None:
            return BookieOptions.in_directory(self.data_dir / BOOKIE_NAME)
        import os

        from geminga_bookie.process.config import load_config

        try:
            with unused_keys_unsaid():
                return load_config(config_file, os.environ).bookie_options("")
        except ConfigError as error:
            raise ShellFailed(str(error)) from None


def target_of(context: click.Context) -> Target:
    """The target of a command; a standalone in `data` for one that runs without the shell."""
    return context.find_object(Target) or Target(Path("data"))


def config_of(given: Path | None) -> Path | None:
    """The configuration file: the command's own, or the one in front of its name."""
    return given or target_of(click.get_current_context()).config_file
