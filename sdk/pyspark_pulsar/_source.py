"""The data source that Spark calls (spec SP-01, SP-05, SP-06)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

    from pyspark_pulsar._options import ReadOptions


_TABLE_PROPERTIES = frozenset(
    {"provider", "comment", "owner", "location", "external", "is_managed_location", "collation"}
)
"""Properties of TableCatalog, not options of this data source."""


class PulsarDataSource(DataSource):
    """`format("pulsar")`. Spark creates one for each step of planning, mostly in a separate
    process, so no state is kept between them.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "pulsar"

    def schema(self) -> StructType:
        """The default columns of a read. Raises InvalidOption, TopicMissing, SchemaMismatch,
        GemingaError.
        """
        from pyspark_pulsar._clients import client_for
        from pyspark_pulsar._options import parse_read
        from pyspark_pulsar._plan._ranges import check_named
        from pyspark_pulsar._plan._schemas import default_schema
        from pyspark_pulsar._plan._topics import expand

        options = parse_read(_plain(self.options), streaming=None)
        client = client_for(options.client)
        parts = expand(client, options.topics)
        check_named(options, parts)
        return default_schema(client, options, parts)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`. Raises InvalidOption."""
        from pyspark_pulsar._options import parse_read
        from pyspark_pulsar._scan._batch import batch_reader

        return batch_reader(parse_read(_plain(self.options), streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`. Raises InvalidOption, SchemaMismatch, GemingaError."""
        from pyspark_pulsar._options import parse_read
        from pyspark_pulsar._stream._reader import PulsarStreamReader

        options = parse_read(_plain(self.options), streaming=True)
        return PulsarStreamReader(_checked(options, schema), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`. Raises InvalidOption, SchemaMismatch, GemingaError."""
        from pyspark_pulsar._options import parse_write
        from pyspark_pulsar._write import make_writer

        options = parse_write(_plain(self.options), streaming=False)
        return make_writer(schema, options, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`. Raises InvalidOption, SchemaMismatch, GemingaError."""
        from pyspark_pulsar._options import parse_write
        from pyspark_pulsar._write import make_stream_writer

        options = parse_write(_plain(self.options), streaming=True)
        return make_stream_writer(schema, options, overwrite=overwrite)


def _plain(options: Mapping[str, str]) -> dict[str, str]:
    """The options without what Spark adds for a table of its catalog: the table's properties, and a
    copy of each option as `option.name`.
    """
    if options.get("provider", "").lower() != PulsarDataSource.name():
        return dict(options.items())
    return {
        name: value
        for name, value in options.items()
        if name.lower() not in _TABLE_PROPERTIES and not name.lower().startswith("option.")
    }


def _checked(options: ReadOptions, schema: StructType) -> ReadOptions:
    from pyspark_pulsar._clients import client_for
    from pyspark_pulsar._plan._ranges import check_named
    from pyspark_pulsar._plan._schemas import checked_options
    from pyspark_pulsar._plan._topics import expand
    from pyspark_pulsar._rest import check_admin
    from pyspark_pulsar.errors import TopicMissing

    client = client_for(options.client)
    try:
        parts = expand(client, options.topics)
    except TopicMissing:
        if options.topics.pattern is None:
            raise
        # A stream with a pattern may start before its first topic exists.
        parts = []
    check_admin(options.client, parts)
    check_named(options, parts)
    return checked_options(client, options, parts, schema)
