"""`geminga sql`: tables that are topics, results for people and programs, the prompt, JDBC
(spec SP-08).
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from compat_tests.processes import geminga_command, guarded, spawn, wait_until
from compat_tests.spark.session import spark_environment
from compat_tests.spark.topics import Pulsar
from geminga import schema
from pyspark_pulsar.cli._failures import Failure, sentence
from pyspark_pulsar.cli._results import Form, print_result
from pyspark_pulsar.cli._tables import Tables

BEELINE = Path(pyspark.__file__).parent / "bin" / "beeline"
START_S = 150.0
"""An engine of its own takes 5 s when it is alone, and several times that when it isn't."""


@dataclasses.dataclass
class Order:
    """A record with a nested list."""

    id: int
    item: str
    tags: list[str]


ORDERS = [Order(1, "tea", ["hot"]), Order(2, "cake; large", []), Order(3, "pie", ["a", "b"])]


@pytest.fixture(scope="module")
def namespace(pulsar: Pulsar) -> str:
    """With a topic `orders` of records and one `Plain` of bytes."""
    found = pulsar.namespace("sql")
    pulsar.publish(
        f"persistent://{found}/orders",
        ORDERS,
        schema=schema.Avro(Order),
        each=lambda number: {"event_time_ms": 1_700_000_000_000 + number},
    )
    pulsar.publish(f"persistent://{found}/Plain", [b"text", b"\xff\x00"])
    return found


@pytest.fixture
def tables(spark: SparkSession, pulsar: Pulsar, namespace: str) -> Iterator[Tables]:
    """Views are dropped afterwards: the session is everybody's."""
    before = {view.name for view in spark.catalog.listTables()}
    yield Tables(spark, {"service.url": pulsar.url}, namespace, {"Bought": f"{namespace}/orders"})
    for view in spark.catalog.listTables():
        if view.name not in before:
            spark.catalog.dropTempView("`" + view.name + "`")


@pytest.fixture
def printed(tables: Tables) -> Callable[..., str]:
    """What a statement prints."""

    def answer(statement: str, form: str = "table", rows_max: int | None = None) -> str:
        out = io.StringIO()
        print_result(tables.query(statement), Form(form), rows_max, out)
        return out.getvalue()

    return answer


def test_names_of_tables_are_names_of_topics(printed: Callable[..., str], namespace: str) -> None:
    full = f"`persistent://{namespace}/orders`"
    short = f"`{namespace}/orders`"
    query = f"""
        select a.id, b.item, size(c.tags) as tags, d.id + 1 as more
        from orders a join {full} b on a.id = b.id join {short} c on a.id = c.id
        join bought d on a.id = d.id where a.id < 3 order by a.id
    """
    assert printed(query) == (
        "id  item         tags  more\n"
        "--  -----------  ----  ----\n"
        "1   tea          1     2\n"
        "2   cake; large  0     3\n"
        "(2 rows)\n"
    )
    assert printed("select value from Plain", "csv") == "value\ntext\n/wA=\n"


def test_topics_join_with_tables(printed: Callable[..., str], tables: Tables) -> None:
    """A table of any other kind, here made by the statement itself."""
    tables.query(
        "create temporary view prices as select * from values (1, 2.5), (3, 4.5) p(id, eur)"
    )
    query = "select item, eur from orders join prices using (id) order by eur desc"
    assert (
        printed(query, "json") == '{"item": "pie", "eur": "4.5"}\n{"item": "tea", "eur": "2.5"}\n'
    )


def test_a_view_says_itself_where_its_topic_is(
    printed: Callable[..., str], tables: Tables, pulsar: Pulsar, namespace: str
) -> None:
    tables.query(
        f"create temporary view first using pulsar options (`service.url` '{pulsar.url}', "
        f"topic 'persistent://{namespace}/orders', schemaMode 'raw')"
    )
    assert printed("select count(value) n from first", "json") == '{"n": 3}\n'


def test_forms(printed: Callable[..., str]) -> None:
    query = "select id, tags, __eventTime as at, __key from orders order by id"
    assert printed(query, "csv", 2) == (
        'id,tags,at,__key\n1,"[""hot""]",2023-11-14T22:13:20Z,\n2,[],2023-11-14T22:13:20.001000Z,\n'
    )
    (first, *_) = printed(query, "json").splitlines()
    expected = {"id": 1, "tags": ["hot"], "at": "2023-11-14T22:13:20Z", "__key": None}
    assert json.loads(first) == expected
    assert printed(query, "table", 1).splitlines()[-1] == "(1 row, and more: --max-rows)"
    assert printed("create temporary view no_answer as select 1 as one") == ""


def test_a_query_sees_what_came_since_the_last(
    printed: Callable[..., str], pulsar: Pulsar, namespace: str
) -> None:
    name = "growing"
    pulsar.publish(f"persistent://{namespace}/{name}", [b"1"])
    query = f"select count(*) as n from {name}"
    assert printed(query, "json") == '{"n": 1}\n'
    pulsar.publish(f"persistent://{namespace}/{name}", [b"2", b"3"])
    assert printed(query, "json") == '{"n": 3}\n'


def test_what_goes_wrong_is_a_sentence(tables: Tables, printed: Callable[..., str]) -> None:
    with pytest.raises(Failure, match=r"^table nowhere: topic .*/nowhere: doesn't exist"):
        tables.query("select * from nowhere")
    with pytest.raises(Failure, match=r"no table `a`\.`b`: a topic's name is one name"):
        tables.query("select * from a.b")
    with pytest.raises(AnalysisException) as wrong:
        tables.query("select no_column from orders")
    assert re.match(r"\[UNRESOLVED_COLUMN[^\n]* `no_column`", sentence(wrong.value))
    assert "Traceback" not in sentence(wrong.value)
    with pytest.raises(Failure, match="two columns are called id"):
        printed("select id, id from orders", "json")


def command(pulsar: Pulsar, namespace: str, *arguments: str) -> list[str]:
    """The program, with a Spark of its own."""
    small = ["--master", "local[1]", "-c", "spark.driver.memory=512m", "-n", namespace]
    return [*geminga_command(), "sql", "-u", pulsar.url, *small, *arguments]


def test_the_command_stops_at_what_fails(pulsar: Pulsar, namespace: str, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text("select max(id) as id from orders; -- the last; of all\nselec 1; select 2")
    done = subprocess.run(
        command(pulsar, namespace, "--format", "json", "-e", "select ';' as s", "-f", str(script)),
        capture_output=True,
        text=True,
        timeout=START_S,
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout == '{"s": ";"}\n{"id": 3}\n', done.stderr
    assert done.returncode == 1
    assert done.stderr.startswith("Error: [PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'.")
    assert len(done.stderr.splitlines()) < 5
    assert list(tmp_path.iterdir()) == [script], "something was left in the folder"


def test_the_prompt(pulsar: Pulsar, namespace: str) -> None:
    """At a terminal: statements of several lines, an error that ends nothing, and a way out."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        guarded(command(pulsar, namespace)),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "dumb"},
    )
    os.close(theirs)
    os.write(ours, b"select item\nfrom orders where id = 1;\nselec;\nselect 40 + 2 as n;\nquit\n")
    heard = b""
    with contextlib.suppress(OSError):  # the terminal's other end is closed
        while piece := os.read(ours, 4096):
            heard += piece
    os.close(ours)
    assert process.wait(START_S) == 0
    text = heard.decode().replace("\r\n", "\n")
    assert re.search(r"^item\n-+\ntea\n\(1 row\)$", text, re.MULTILINE), text
    assert "Error: [PARSE_SYNTAX_ERROR]" in text
    assert re.search(r"^n\n-+\n42\n", text, re.MULTILINE), text


def test_jdbc(pulsar: Pulsar, namespace: str, tmp_path: Path) -> None:
    """Spark's own JDBC client asks Spark's own server, which has topics as tables."""
    log_path = tmp_path / "server.log"
    server = spawn(
        command(pulsar, namespace, "--thrift-server", "--thrift-port", "0"),
        log_path=log_path,
        cwd=tmp_path,
        env=spark_environment(),
    )
    line = r"^ready in [0-9.]+ s: (jdbc:hive2://127\.0\.0\.1:\d+) tables=\d+$"
    ready = re.compile(line, re.MULTILINE)
    try:
        wait_until(lambda: bool(ready.search(log_path.read_text())), server, log_path,
                   timeout_s=START_S)  # fmt: skip
        url = ready.findall(log_path.read_text())[0]
        query = "select item, size(tags) as tags from orders where id > 1 order by id"
        done = subprocess.run(
            [str(BEELINE), "-u", url, "--silent=true", "--outputformat=csv2",
             "-e", query, "-e", "show tables"],
            capture_output=True, text=True, timeout=START_S, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert "item,tags\ncake; large,0\npie,2\n" in done.stdout, done.stderr[-2000:]
        assert re.search(r"^,orders,true$", done.stdout, re.MULTILINE), done.stdout
        server.send_signal(signal.SIGTERM)
        assert server.wait(START_S) == 0, log_path.read_text()
    finally:
        server.kill()
        server.wait()
