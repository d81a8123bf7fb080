"""Python's garbage collector in a long-lived server."""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 50_000
"""Collections of young objects each that many new ones (Python's 700 would mean one a network
read).
"""

MIDDLE_COLLECTIONS = 20
OLD_COLLECTIONS = 50


def freeze_after_start() -> None:
    """Call once all modules are imported and start-up is over.

    What lives then lives as long as the process: it is taken out of every later collection, and
    collections become rare. Entries on the hot path are freed by reference counts alone.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, MIDDLE_COLLECTIONS, OLD_COLLECTIONS)
