"""The collector's settings."""

from __future__ import annotations

import gc

from geminga_runtime.process import YOUNG_OBJECTS, freeze_after_start


def test_freezes_existing_objects() -> None:
    before = gc.get_threshold()
    try:
        freeze_after_start()
        assert gc.get_threshold()[0] == YOUNG_OBJECTS
        assert gc.get_freeze_count() > 0
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
