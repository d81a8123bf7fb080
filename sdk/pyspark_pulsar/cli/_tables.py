"""Topics as tables. If a statement names a missing table, a view of the topic of that name is
created, and the statement is tried again: Spark reports the names, so no SQL is parsed here.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pyspark_pulsar.cli._failures import Failure, sentence

TABLES_MAX = 1000
"""Maximum views created for one statement."""
_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


class Tables:
    """The views of one session. `names` maps tables' names to topics with other names; Spark
    compares tables' names without case.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        namespace: str,
        names: Mapping[str, str],
    ) -> None:
        self._spark = spark
        self._options = dict(options)
        self.namespace = namespace
        self.names = {name.lower(): topic for name, topic in names.items()}
        self._made: set[str] = set()

    def query(self, statement: str) -> DataFrame:
        """The result of a statement. Views are created for each statement: Spark plans a view once,
        and the next statement has to see new messages. Raises AnalysisException and Failure.
        """
        for made in self._made:
            self.drop(made)
        self._made.clear()
        while True:
            try:
                return self._spark.sql(statement)
            except AnalysisException as error:
                name = _missing(error)
                if name is None or name in self._made or len(self._made) >= TABLES_MAX:
                    raise
            self.add(name)
            self._made.add(name)

    def add(self, name: str) -> None:
        """Create the view of a table. Raises Failure if its topic can't be read."""
        topic = self.topic_of(name)
        try:
            reader = self._spark.read.format("pulsar").options(**self._options)
            reader.option("topic", topic).load().createOrReplaceTempView(_quoted(name))
        except AnalysisException as error:
            raise Failure(f"table {name}: {sentence(error)}") from error

    def drop(self, name: str) -> None:
        """Drop the view of a table, if it exists."""
        self._spark.sql(f"drop view if exists {_quoted(name)}")

    def topic_of(self, name: str) -> str:
        """The full name of a table's topic."""
        named = self.names.get(name.lower(), name)
        if "://" in named:
            return named
        return f"persistent://{named if named.count('/') == 2 else f'{self.namespace}/{named}'}"


def _quoted(name: str) -> str:
    """The name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def _missing(error: AnalysisException) -> str | None:
    """The missing table of a statement, if this is the error. Raises Failure for a name of several
    parts, which no view can have.
    """
    if error.getCondition() != _NOT_FOUND:
        return None
    told = (error.getMessageParameters() or {}).get("relationName", "")
    parts = told.removeprefix("`").removesuffix("`").split("`.`")
    if len(parts) > 1:
        raise Failure(
            f"there is no table {told}: a topic's name is one name, in backquotes, as in "
            "`tenant/namespace/topic`"
        )
    return parts[0].replace("``", "`") or None
