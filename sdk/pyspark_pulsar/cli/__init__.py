"""`geminga sql`: SQL over topics, by Spark (spec SP-08); `geminga spark-anchor`: subscriptions of
streams that ended (SP-05).

The import is light: `geminga --help` loads the command, and Spark is loaded only when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pyspark_pulsar.cli._options import ROWS_MAX, connector_options

_FILE = click.Path(exists=True, dir_okay=False)
_SERVICE_URL = click.option("--service-url", "--url", "-u", default="pulsar://127.0.0.1:6650",
                            show_default=True, help="Service URL of the brokers.")  # fmt: skip
_OPTIONS_FILE = click.option(
    "--options-file", type=_FILE, help="File of such options, one a line; use it for secrets."
)
_OPTIONS = (
    _SERVICE_URL,
    click.option("--admin-url", help="REST API of the brokers; it speeds up planning."),
    click.option("--execute", "-e", multiple=True, metavar="SQL",
                 help="Run this statement and exit; may be repeated."),
    click.option("--file", "-f", "script", type=_FILE,
                 help="Run the statements of a file and exit."),
    click.option("--namespace", "-n", default="public/default", show_default=True,
                 help="Namespace of topics with a short name."),
    click.option("--topic", "-t", "topics", multiple=True, metavar="NAME=TOPIC",
                 help="Give a topic's table another name."),
    click.option("--option", "-o", "options", multiple=True, metavar="KEY=VALUE",
                 help="Any option of the connector's batch reads."),
    _OPTIONS_FILE,
    click.option("--conf", "-c", "confs", multiple=True, metavar="KEY=VALUE",
                 help="Any setting of Spark."),
    click.option("--master", default="local[*]", show_default=True, help="Spark's master."),
    click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table",
                 show_default=True, help="How results are printed."),
    click.option("--max-rows", type=click.IntRange(min=0),
                 help=f"Rows to print at most; 0: all. [default: {ROWS_MAX} in a table]"),
    click.option("--verbose", "-v", is_flag=True, help="Show Spark's logs."),
    click.option("--thrift-server", is_flag=True,
                 help="Serve JDBC and ODBC until interrupted, instead of a prompt."),
    click.option("--thrift-host", default="127.0.0.1", show_default=True,
                 help="Address to listen on; anyone who can connect can read."),
    click.option("--thrift-port", type=click.IntRange(0, 65535), default=10000, show_default=True,
                 help="Port to listen on; 0: any free port."),
)  # fmt: skip


@click.command("spark-anchor")
@click.argument("checkpoint", required=False, type=click.Path(exists=True, file_okay=False))
@_SERVICE_URL
@click.option("--subscription", "-s", help="Subscription, if the stream had subscriptionName.")
@click.option(
    "--topic",
    "-t",
    "topics",
    multiple=True,
    help="Topic or partition of the subscription, if there is no checkpoint.",
)
@click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any option of the connector's client.",
)
@_OPTIONS_FILE
@click.option("--remove", is_flag=True, help="Delete the subscription, not only show it.")
def spark_anchor(checkpoint: str | None, **given: Any) -> None:
    """Show or delete the subscription of a Spark stream that won't run again.

    The subscription retains messages that nobody will read. CHECKPOINT is the query's checkpoint
    folder, whose newest offsets have its name and topics. The subscription of a running query is
    not deleted.
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

    A table is a topic: "select * from orders" reads the topic orders of the namespace; write a full
    name in backquotes. Without -e and -f it is a prompt, where a statement ends with a semicolon;
    piped input is run like a file.
    """
    import msgspec

    from pyspark_pulsar.cli._run import Settings, run

    run(msgspec.convert(given, Settings))
