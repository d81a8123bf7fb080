"""What is taken of a message's options."""

from __future__ import annotations

from typing import Any

from geminga._producing.message_options import _properties


class FirstOfMany(dict[str, list[str]]):
    """As web frameworks' dictionaries of several values: their items have the first one of each."""

    def items(self) -> Any:
        """The first values."""
        return {key: values[0] for key, values in super().items()}.items()


def test_properties_are_a_mappings_items() -> None:
    assert _properties(FirstOfMany(a=["1", "2"])) == {"a": "1"}
    own = {"a": "1"}
    taken = _properties(own)
    own["a"] = "2"
    assert taken == {"a": "1"}
