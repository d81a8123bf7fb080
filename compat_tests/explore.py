"""Hypothesis' tests alone, with many times their examples, drawn anew.

`make test` draws the same examples in every run, so that a change is what makes it fail; this
looks for what those miss: `python -m compat_tests.explore --times 8 sdk protocol`.
What comes behind `--times` goes to pytest. A failure prints how to repeat it.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import pytest

# Hypothesis keeps a test's settings here; its decorator refuses a test that has some.
_SETTINGS = "_hypothesis_internal_use_settings"


class Explorer:
    """A pytest plugin that keeps Hypothesis' tests, each with `times` its examples."""

    def __init__(self, times: int) -> None:
        self._times = times

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        # Pytest warns of what is imported before its plugins are.
        from hypothesis import is_hypothesis_test, settings

        tests = {item: _function(item) for item in items}
        kept = [item for item in items if is_hypothesis_test(tests[item])]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept
        for test in {id(tests[item]): tests[item] for item in kept}.values():
            own = getattr(test, _SETTINGS, None) or settings.default
            more = settings(
                own, max_examples=own.max_examples * self._times, deadline=None, print_blob=True
            )
            setattr(test, _SETTINGS, more)


def _function(item: pytest.Item) -> Any:
    found = getattr(item, "obj", None)
    return getattr(found, "__func__", found)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("compat_tests.explore", description=__doc__)
    parser.add_argument("--times", type=int, default=8, help="how many times the examples")
    given, rest = parser.parse_known_args(arguments)
    if given.times < 1:
        parser.error("--times must be 1 or more")
    # A long test is no hanging one here.
    options = ["--hypothesis-profile=default", "--timeout=0", "-o", "faulthandler_timeout=0"]
    return int(pytest.main([*options, *rest], plugins=[Explorer(given.times)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
