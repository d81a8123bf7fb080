"""Tables that are topics. A statement that names a table which isn't there gets a view of the topic
of that name, and is tried again: Spark itself tells the names, so that no SQL is parsed here.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pyspark_pulsar.cli._failures import Failure, sentence

TABLES_MAX = 1000
"""Tables that one statement may have made for it."""
_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


class Tables:
    """The views of one session. `names` are tables' names -> topics, for what isn't called like its
    topic; Spark compares tables' names without case.
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
        """What a statement answers. Views that it needs are made for it alone: a view is planned
        once, and the next statement shall see what came since. Raises AnalysisException and
        Failure.
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
        """Make the view of a table's name. Raises Failure if it has no topic that can be read."""
        topic = self.topic_of(name)
        try:
            reader = self._spark.read.format("pulsar").options(**self._options)
            reader.option("topic", topic).load().createOrReplaceTempView(_quoted(name))
        except AnalysisException as error:
            raise Failure(f"table {name}: {sentence(error)}") from error

    def drop(self, name: str) -> None:
        """Drop the view of a table's name, if it is there."""
        self._spark.sql(f"drop view if exists {_quoted(name)}")

    def topic_of(self, name: str) -> str:
        """Full name of the topic that a table's name means."""
        named = self.names.get(name.lower(), name)
        if "://" in named:
            return named
        return f"persistent://{named if named.count('/') == 2 else f'{self.namespace}/{named}'}"


def _quoted(name: str) -> str:
    """Quoted, any name is one of a view."""
    return "`" + name.replace("`", "``") + "`"


def _missing(error: AnalysisException) -> str | None:
    """The table that a statement names and that isn't there, if this is the error. Raises Failure
    for a name of several parts, which can't be a view's.
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
