"""What is remembered, and several writes at once (decision 35)."""

from __future__ import annotations

from geminga_runtime.metadata._tests.test_cached import opened
from geminga_runtime.metadata.api import MUST_NOT_EXIST, Write


async def test_writes_under_a_number_are_read_before_the_store_tells_of_them() -> None:
    async with opened() as world:
        world.store.mute()
        assert await world.value("/a/b") is None
        assert await world.value("/a/numbers") is None
        assert await world.cached.children("/a") == []
        writes = [Write("/a/b", b"1", MUST_NOT_EXIST)]
        assert await world.cached.put_numbered("/a/numbers/n-", lambda _: writes) == (0, [0])
        assert await world.value("/a/b") == b"1"
        assert await world.value("/a/numbers") == b"", "a parent was made"
        assert await world.cached.children("/a") == ["b", "numbers"]
