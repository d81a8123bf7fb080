"""The connector's options: parsed once, when a read or write is planned, into plain data."""

from __future__ import annotations

from pyspark_pulsar._options._bounds import AtTime as AtTime
from pyspark_pulsar._options._bounds import Bound as Bound
from pyspark_pulsar._options._bounds import Edge as Edge
from pyspark_pulsar._options._bounds import Where as Where
from pyspark_pulsar._options._client import ClientSettings as ClientSettings
from pyspark_pulsar._options._parser import OptionParser as OptionParser
from pyspark_pulsar._options._read import ParseMode as ParseMode
from pyspark_pulsar._options._read import ReadOptions as ReadOptions
from pyspark_pulsar._options._read import TopicSelection as TopicSelection
from pyspark_pulsar._options._read import parse_read as parse_read
from pyspark_pulsar._options._write_options import WriteOptions as WriteOptions
from pyspark_pulsar._options._write_options import parse_write as parse_write
