"""Click's commands from the rows of the table."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from geminga.cli._run import interrupted
from geminga.cli.admin.calls import Calls
from geminga.cli.admin.declare import Command, Option, Values
from geminga.cli.admin.values import KINDS

ARGUMENTS = {
    "topic": "TOPIC",
    "namespace": "TENANT/NAMESPACE",
    "tenant": "TENANT",
    "cluster": "CLUSTER",
    "group": "GROUP",
    "policy": "POLICY",
}
"""How help shows arguments."""


def built(row: Command) -> click.Command:
    """The command of a row."""
    parameters: list[click.Parameter] = []
    for each in row.arguments.split():
        name = each.strip("[]")
        parameters.append(
            click.Argument(
                [name],
                required=not each.startswith("["),
                metavar=ARGUMENTS.get(name, name.upper()),
            )
        )
    parameters += [_option(option) for option in row.options]
    parameters.append(
        click.Option(
            ["--format", "form"],
            type=click.Choice(["auto", "json", "table"]),
            default="auto",
            help="As pulsar-admin, JSON, or an aligned table.",
        )
    )
    if row.lines is not None:
        names = ["--json", "in_json"]
        parameters.append(click.Option(names, is_flag=True, help="As --format json."))
    if _is_read(row):
        parameters.append(
            click.Option(
                ["--watch", "watch_s"],
                type=click.FloatRange(min=0.1),
                metavar="SECONDS",
                help="Repeat it until Ctrl-C.",
            )
        )
    return AdminCommand(
        row.name,
        params=parameters,
        callback=_callback(row),
        help=row.about,
        hidden=row.is_hidden,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


class AdminCommand(click.Command):
    """Takes `--flag=true` and `--flag=false` too, as picocli does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what is left of the command line."""
        flags = {
            name
            for each in self.params
            if isinstance(each, click.Option) and each.is_flag
            for name in each.opts
        }
        kept = []
        for arg in args:
            name, equals, value = arg.partition("=")
            if not equals or name not in flags or value.lower() not in ("true", "false"):
                kept.append(arg)
            elif value.lower() == "true":
                kept.append(name)
            else:
                ctx.meta.setdefault("geminga.off", set()).add(name)
        return super().parse_args(ctx, kept)


def _option(option: Option) -> click.Option:
    # The parameter's own name comes first: several options have names that Python can't take.
    names = [option.to, *option.names.split()]
    common: dict[str, Any] = {
        "required": option.required,
        "help": option.help or None,
        "hidden": option.hidden,
    }
    if option.kind == "flag":
        return click.Option(names, is_flag=True, default=bool(option.default), **common)
    kinds = {"int": click.INT, "float": click.FLOAT}
    if option.default is not None:
        common |= {"default": option.default, "show_default": True}
    return click.Option(
        names,
        type=kinds.get(option.kind, click.STRING),
        multiple=option.kind in ("list", "pairs", "actions", "subscription types"),
        callback=_converted(KINDS.get(option.kind)),
        metavar=_METAVARS.get(option.kind),
        **common,
    )  # fmt: skip


_METAVARS = {
    "size": "SIZE",
    "seconds": "TIME",
    "milliseconds": "TIME",
    "list": "A,B",
    "pairs": "KEY=VALUE",
    "place": "LEDGER:ENTRY",
    "file": "FILE",
}


def _converted(
    convert: Callable[..., object] | None,
) -> Callable[[click.Context, click.Parameter, Any], object]:
    def converted(context: click.Context, parameter: click.Parameter, value: Any) -> object:
        if value is None or value == ():
            return None
        return value if convert is None else convert(value)

    return converted


def _is_read(row: Command) -> bool:
    if row.operation is None:
        return row.is_read
    from geminga._admin.declared import declaration_of

    return declaration_of(row.operation).method == "GET"


def _callback(row: Command) -> Callable[..., None]:
    def run(
        form: str, watch_s: float | None = None, in_json: bool = False, **values: object
    ) -> None:
        form = "json" if in_json else form
        context = click.get_current_context()
        for parameter in context.command.params:
            off: set[str] = context.meta.get("geminga.off", set())
            if isinstance(parameter, click.Option) and off & set(parameter.opts):
                values[str(parameter.name)] = False
        calls = context.find_object(Calls)
        assert calls is not None, "the group makes them"
        if watch_s is None:
            answer = done(row, calls, dict(values))
            shown(_for_people(row, answer, form), form)
            if row.failed is not None and row.failed(answer):
                context.exit(1)
            return
        try:
            while True:
                answer = done(row, calls, dict(values))
                if sys.stdout.isatty():
                    click.clear()
                shown(_for_people(row, answer, form), form)
                time.sleep(watch_s)
        except KeyboardInterrupt:
            interrupted()

    return run


def done(row: Command, calls: Calls, values: Values) -> object:
    """Run a row with values; returns what is to be printed. Raises UsageError, and ClickException
    for the server's refusal.
    """
    from geminga.errors import GemingaError, InvalidArgumentError

    try:
        if row.run is not None:
            return row.run(calls, values)
        if row.make is not None:
            values = row.make(values)
        assert row.operation is not None, row.name
        given = {name: value for name, value in values.items() if value is not None}
        answer = calls.call(row.operation, **given)
        return row.says.format(**values) if row.says else answer
    except InvalidArgumentError as error:
        raise click.UsageError(str(error)) from error
    except GemingaError as error:
        raise click.ClickException(str(error)) from error


def _for_people(row: Command, answer: object, form: str) -> object:
    if form != "auto":
        return answer
    if row.lines is not None:
        return row.lines(answer)
    # As pulsar-admin says that nothing is set.
    return "null" if answer is None and (_is_read(row) or row.tells) else answer


def shown(answer: object, form: str) -> None:
    """Print an answer."""
    from geminga.cli.admin.output import rendered

    text = rendered(answer, form)
    if text:
        click.echo(text)


def commands_of(modules: Sequence[str]) -> dict[str, Command]:
    """All rows of a family."""
    found: dict[str, Command] = {}
    for module in modules:
        found |= {row.name: row for row in rows_of(module)}
    return found


def rows_of(module: str) -> Sequence[Command]:
    """The rows of one module of the table."""
    import importlib

    rows: Sequence[Command] = importlib.import_module(f"geminga.cli.admin.table.{module}").COMMANDS
    return rows
