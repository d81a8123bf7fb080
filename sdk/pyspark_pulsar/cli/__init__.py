"""`geminga sql`: SQL over topics, by Spark (spec SP-08); `geminga spark-anchor`: subscriptions that
streams leave behind (SP-05).

The import is light: `geminga --help` loads the command, and Spark is loaded only when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pyspark_pulsar.cli._options import ROWS_MAX, connector_options

_FILE = click.Path(exists=True, dir_okay=False)
_OPTIONS = (
    click.option("--service-url", "-u", default="pulsar://127.0.0.1:6650", show_default=True,
                 help="Where the brokers are."),
    click.option("--admin-url", help="Their REST API: large topics are planned faster with it."),
    click.option("--execute", "-e", multiple=True, metavar="SQL",
                 help="Run this and end; may be given several times."),
    click.option("--file", "-f", "script", type=_FILE,
                 help="Run the statements of a file and end."),
    click.option("--namespace", "-n", default="public/default", show_default=True,
                 help="Where topics with a short name are."),
    click.option("--topic", "-t", "topics", multiple=True, metavar="NAME=TOPIC",
                 help="A table's name for a topic."),
    click.option("--option", "-o", "options", multiple=True, metavar="KEY=VALUE",
                 help="Any option of the connector's batch reads."),
    click.option("--options-file", type=_FILE,
                 help="Such options, one a line: secrets don't belong on a command line."),
    click.option("--conf", "-c", "confs", multiple=True, metavar="KEY=VALUE",
                 help="Any setting of Spark."),
    click.option("--master", default="local[*]", show_default=True, help="Spark's master."),
    click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table",
                 show_default=True, help="How results are printed."),
    click.option("--max-rows", type=click.IntRange(min=0),
                 help=f"Print so many rows of a result; 0: all. [default: {ROWS_MAX} in a table]"),
    click.option("--verbose", "-v", is_flag=True, help="Show what Spark's engine logs."),
    click.option("--thrift-server", is_flag=True,
                 help="Serve JDBC and ODBC until interrupted, in place of a prompt."),
    click.option("--thrift-host", default="127.0.0.1", show_default=True,
                 help="Address that it listens on; whoever reaches it may read."),
    click.option("--thrift-port", type=click.IntRange(0, 65535), default=10000, show_default=True,
                 help="Port that it listens on; 0: any free one."),
)  # fmt: skip


@click.command("spark-anchor")
@click.argument("checkpoint", required=False, type=click.Path(exists=True, file_okay=False))
@click.option(
    "--service-url",
    "-u",
    default="pulsar://127.0.0.1:6650",
    show_default=True,
    help="Where the brokers are.",
)
@click.option("--subscription", "-s", help="Its name, if the stream had subscriptionName.")
@click.option(
    "--topic",
    "-t",
    "topics",
    multiple=True,
    help="A topic or partition that it is on, without a checkpoint.",
)
@click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any option of the connector's client.",
)
@click.option(
    "--options-file",
    type=_FILE,
    help="Such options, one a line: secrets don't belong on a command line.",
)
@click.option("--remove", is_flag=True, help="Delete it, in place of only telling it.")
def spark_anchor(checkpoint: str | None, **given: Any) -> None:
    """The subscription that a stream of Spark leaves behind when it is gone for good.

    It holds messages that nobody will read. CHECKPOINT is the query's checkpoint folder, whose
    newest offsets tell subscription and topics. A query that still runs keeps its own.
    """
    from pyspark_pulsar.cli._anchors import run

    options = connector_options(given["service_url"], given["options"], given["options_file"])
    run(checkpoint, given["subscription"], given["topics"], options, removes=given["remove"])


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@_with_options
def sql(**given: object) -> None:
    """SQL over topics, by Spark.

    A table is a topic: "select * from orders" reads the topic orders of the namespace; a full name
    stands in backquotes. Without -e and -f it is a prompt, where a statement ends with a semicolon;
    what comes from a pipe is run as a file is.
    """
    import msgspec

    from pyspark_pulsar.cli._run import Settings, run

    run(msgspec.convert(given, Settings))
