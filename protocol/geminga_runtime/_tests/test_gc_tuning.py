"""The collector's settings."""

from __future__ import annotations

import gc

import pytest

from geminga_runtime.process import YOUNG_OBJECTS, freeze_after_start


@pytest.mark.slow
def test_freezes_existing_objects() -> None:
    before = gc.get_threshold()
    try:
        freeze_after_start()
        assert gc.get_threshold()[0] == YOUNG_OBJECTS
        assert gc.get_freeze_count() > 0
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
