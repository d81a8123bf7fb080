"""Fixtures for all tests of the broker. Stands beside the package: no wheel holds it."""

from __future__ import annotations

import pytest
import trio

from geminga_broker._tests.topic_world import World


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    """Topics over a log in memory."""
    return World(nursery)
