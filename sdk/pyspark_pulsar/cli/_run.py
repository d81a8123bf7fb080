"""The command `geminga sql`: checks its options, starts Spark, runs statements or serves."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyspark_pulsar._options import parse_read
from pyspark_pulsar.cli._engine import EngineMissing, engine
from pyspark_pulsar.cli._options import connector_options, pairs
from pyspark_pulsar.errors import InvalidOption

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_pulsar.cli._tables import Tables

EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
_PROMPT, _MORE = "sql> ", "  -> "
_PIECE = re.compile(
    r"""
      '(?:[^'\\]|\\.|'')*'       # a text
    | "(?:[^"\\]|\\.|"")*"       # a text, or a name
    | `(?:[^`]|``)*`             # a name
    | --[^\n]*                   # comments
    | /\*.*?\*/
    | ;
    | [^'"`;/-]+
    | [/-]
    | (?P<open>['"`].*)          # not ended
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The command's options."""

    service_url: str
    admin_url: str | None
    execute: tuple[str, ...]
    script: str | None
    namespace: str
    topics: tuple[str, ...]
    options: tuple[str, ...]
    options_file: str | None
    confs: tuple[str, ...]
    master: str
    form: str
    max_rows: int | None
    verbose: bool
    thrift_server: bool
    thrift_host: str
    thrift_port: int

    def reading(self) -> dict[str, str]:
        """Options of the connector except the topic. Raises click's errors for an invalid pair or
        option.
        """
        told = {"admin.url": self.admin_url} if self.admin_url else {}
        told |= connector_options(self.service_url, self.options, self.options_file)
        try:
            parse_read(told | {"topic": "any"}, streaming=False)
        except InvalidOption as error:
            raise click.UsageError(str(error)) from None
        return told


def run(settings: Settings) -> None:
    """The whole command. Raises click's errors; ends the process with 130 after Ctrl-C."""
    options, names = settings.reading(), pairs("--topic", settings.topics)
    confs = pairs("--conf", settings.confs)
    if settings.thrift_server and (settings.execute or settings.script):
        raise click.UsageError("--thrift-server runs no statements: leave out -e and -f")
    statements = list(_given(settings))
    try:
        with engine(settings.master, confs, verbose=settings.verbose) as spark:
            _work(settings, spark, options, names, statements)
    except EngineMissing as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _work(
    settings: Settings,
    spark: SparkSession,
    options: dict[str, str],
    names: dict[str, str],
    statements: Sequence[str],
) -> None:
    from pyspark_pulsar.cli._failures import ENGINE_ERRORS, Failure, sentence
    from pyspark_pulsar.cli._tables import Tables
    from pyspark_pulsar.cli._thrift import serve

    tables = Tables(spark, options, settings.namespace, names)
    try:
        if settings.thrift_server:
            serve(spark, tables, options, host=settings.thrift_host, port=settings.thrift_port)
        elif statements or _is_batch(settings):
            for statement in statements:
                _execute(settings, tables, statement)
        else:
            _prompt(lambda statement: _execute(settings, tables, statement))
    except (*ENGINE_ERRORS, Failure) as error:
        raise click.ClickException(sentence(error)) from error


def _execute(settings: Settings, tables: Tables, statement: str) -> None:
    from pyspark_pulsar.cli._results import Form, print_result

    print_result(tables.query(statement), Form(settings.form), settings.max_rows)


def _is_batch(settings: Settings) -> bool:
    return bool(settings.execute or settings.script) or not sys.stdin.isatty()


def _given(settings: Settings) -> Iterator[str]:
    """The statements to run; none for a prompt."""
    if settings.thrift_server:
        return
    texts = list(settings.execute)
    if settings.script:
        texts.append(Path(settings.script).read_text())
    if not texts and not sys.stdin.isatty():
        texts.append(sys.stdin.read())
    for text in texts:
        ended, rest = split_statements(text)
        yield from ended
        if rest:
            yield rest


def _prompt(execute: Callable[[str], None]) -> None:
    """Read and run statements until the input ends; prints errors and continues."""
    from pyspark_pulsar.cli._failures import ENGINE_ERRORS, Failure, sentence

    try:
        import readline  # noqa: F401 (input() uses it once it is loaded)
    except ImportError:
        pass
    text = ""
    while True:
        try:
            line = input(_MORE if text else _PROMPT)
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo()
            text = ""
            continue
        if not text and line.strip().rstrip(";") in ("exit", "quit"):
            return
        ended, text = split_statements(f"{text}\n{line}" if text else line)
        for statement in ended:
            try:
                execute(statement)
            except (*ENGINE_ERRORS, Failure) as error:
                click.echo(f"Error: {sentence(error)}", err=True)
            except KeyboardInterrupt:
                click.echo("Cancelled.", err=True)
                break


def split_statements(text: str) -> tuple[list[str], str]:
    """The statements ended by a semicolon, and the unfinished rest. Comments alone are no
    statement. Semicolons in strings, quoted names and comments are ignored.
    """
    ended: list[str] = []
    start = at = 0
    has_words = False
    while at < len(text):
        if text.startswith("/*", at) and text.find("*/", at + 2) < 0:
            break
        match = _PIECE.match(text, at)
        assert match is not None, "every character begins some piece"
        piece = match[0]
        if match["open"]:
            break
        at = match.end()
        if piece == ";":
            if has_words:
                ended.append(text[start : at - 1].strip())
            start, has_words = at, False
        elif not piece.startswith(("--", "/*")) and not piece.isspace():
            has_words = True
    rest = text[start:].strip()
    return ended, rest if has_words or at < len(text) else ""
