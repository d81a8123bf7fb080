from __future__ import annotations

import dataclasses
from typing import get_type_hints

import pytest

from geminga import options, schema
from geminga._options import checks
from geminga.errors import InvalidArgumentError
from geminga.options import ConsumerOptions
from geminga.schema._base import check_schema

PAIRS = [
    (options.ClientOptions, options.ClientKeywords),
    (options.ProducerOptions, options.ProducerKeywords),
    (options.ConsumerOptions, options.ConsumerKeywords),
    (options.ReaderOptions, options.ReaderKeywords),
]


@pytest.mark.parametrize(("made", "keywords"), PAIRS)
def test_keywords_are_the_fields(made: type, keywords: type) -> None:
    hints = get_type_hints(made)
    # The schema is a parameter of the calls themselves: their result has its type.
    hints.pop("schema", None)
    fields = {field.name for field in dataclasses.fields(made)} - {"schema"}
    assert fields == set(get_type_hints(keywords))
    assert hints == get_type_hints(keywords)
    made()


@pytest.mark.parametrize(
    ("made", "name", "value"),
    [
        (options.ClientOptions, "connections_per_broker", 0),
        (options.ClientOptions, "memory_limit_bytes", "much"),
        (options.ProducerOptions, "max_pending_messages", 0),
        (options.ProducerOptions, "batching_max_messages", True),
        (options.ProducerOptions, "initial_sequence_id", -2),
        (options.ProducerOptions, "compression_type", 1),
        (options.ProducerOptions, "properties", {"a": 1}),
        (options.ProducerOptions, "no_such", 1),
        (options.ConsumerOptions, "receiver_queue_size", -1),
        (options.ConsumerOptions, "consumer_type", "Shared"),
        (options.ConsumerOptions, "key_shared_policy", options.KeySharedPolicy()),
        (options.ReaderOptions, "receiver_queue_size", 0),
    ],
)
def test_bad_values_are_named(made: type, name: str, value: object) -> None:
    with pytest.raises(InvalidArgumentError, match=name):
        options.make(made, {name: value})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("batching_enable", "; did you mean batching_enabled or chunking_enabled?"),
        ("BatchingEnabled", "; did you mean batching_enabled"),
        ("name", "; did you mean initial_subscription_name or producer_name?"),
        ("xyz", "; known are access_mode, "),
    ],
)
def test_a_misspelt_option_tells_what_was_meant(name: str, told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        options.make(options.ProducerOptions, {name: True})
    assert told in str(caught.value)
    assert str(caught.value).startswith(f"unknown option {name!r}")


def test_classes_have_their_article() -> None:
    with pytest.raises(InvalidArgumentError, match="must be an InitialPosition, not 'earliest'"):
        options.make(options.ConsumerOptions, {"initial_position": "earliest"})
    with pytest.raises(InvalidArgumentError, match="must be a ConsumerType"):
        options.make(options.ConsumerOptions, {"consumer_type": "Shared"})


def test_sticky_ranges() -> None:
    options.KeySharedPolicy(((0, 10), (11, 65535)))
    with pytest.raises(InvalidArgumentError, match="overlaps"):
        options.KeySharedPolicy(((5, 20), (0, 5)))
    with pytest.raises(InvalidArgumentError, match="not within"):
        options.KeySharedPolicy(((0, 65536),))


def test_backoff_grows_to_its_end() -> None:
    backoff = options.MultiplierBackoff(1, 30, 2)
    assert [backoff.delay_s(n) for n in (0, 1, 2, 4, 5, 10_000)] == [1, 2, 4, 16, 30, 30]


def test_a_name_of_java_s_client_tells_ours() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"subscription_type'; did you mean consumer_type\?"
    ):
        checks.make(ConsumerOptions, {"subscription_type": 1})


def test_a_wrong_member_names_the_right_ones() -> None:
    text = "not 'earliest': one of InitialPosition.LATEST, InitialPosition.EARLIEST"
    with pytest.raises(InvalidArgumentError, match=text):
        checks.make(ConsumerOptions, {"initial_position": "earliest"})


class Tea:
    """A class of a user's."""


def test_a_class_is_no_schema_and_that_is_told() -> None:
    with pytest.raises(InvalidArgumentError, match=r"geminga.schema.Json\(Tea\) makes one"):
        check_schema(Tea)
    with pytest.raises(InvalidArgumentError, match=r"not <class '.*Json'>$"):
        check_schema(schema.Json)


@pytest.mark.parametrize(
    ("name", "told"), [("StringSchema", r"; did you mean String\?"), ("NoSchema", "$")]
)
def test_a_schema_by_the_official_clients_name_tells_ours(name: str, told: str) -> None:
    with pytest.raises(AttributeError, match=f"'{name}'{told}"):
        getattr(schema, name)
