"""`geminga admin schemas` (Apache's CmdSchemas)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from geminga._admin.families.subscriptions import Schemas
from geminga.cli.admin.declare import Command, Option, Values, flag, number

if TYPE_CHECKING:
    from geminga.cli.admin.calls import Calls

_FILE = Option("-f --filename", "schema", "file", required=True,
               help="A file with {\"type\":, \"schema\":, \"properties\":}.")  # fmt: skip


def _get(calls: Calls, values: Values) -> object:
    topic, version = values["topic"], values["version"]
    if values["all"]:
        if version is not None:
            raise click.UsageError("--version and --all-version exclude each other")
        return calls.call(Schemas.get_all, topic=topic)
    if version is None:
        return calls.call(Schemas.get, topic=topic)
    return calls.call(Schemas.get_version, topic=topic, version=version)


def _payload(values: Values) -> Values:
    content = values["schema"]
    assert isinstance(content, bytes)
    try:
        schema = json.loads(content)
    except ValueError as error:
        raise click.UsageError(f"--filename: no JSON: {error}") from None
    if not isinstance(schema, dict) or not schema.get("type"):
        raise click.UsageError("--filename: no object with a type")
    return {"topic": values["topic"], "schema": {"properties": {}, **schema}}


COMMANDS = (
    Command(
        "get", "Show a topic's schema.", None, "topic",
        (
            number("-v --version", "version", "One version."),
            flag("-a --all-version", "all", "All versions."),
        ),
        run=_get, is_read=True,
    ),
    Command("upload", "Add a version.", Schemas.upload, "topic", (_FILE,), make=_payload),
    Command("delete", "Delete all versions.", Schemas.delete, "topic",
            (flag("-f --force", "force", "Delete also where they are stored."),)),
    Command("compatibility", "Test whether a schema would be taken.", Schemas.compatibility,
            "topic", (_FILE,), make=_payload),
    Command("metadata", "Show where the versions are stored.", Schemas.metadata, "topic"),
)  # fmt: skip
