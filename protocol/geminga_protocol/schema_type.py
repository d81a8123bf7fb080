"""Kinds of schemas (spec SDK-41, BR-51; Apache's `SchemaType`)."""

from __future__ import annotations

from enum import IntEnum


class SchemaType(IntEnum):
    """The values are Apache's; from NONE on, the wire's numbers too."""

    BYTES = -1
    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    AUTO = -2
    AUTO_CONSUME = -3
    AUTO_PUBLISH = -4
