"""The racks and groups of bookies, as the admin API sets them (spec BK-25; Apache's
BookieResources, BookiesRackConfiguration). Ledger clients follow the record.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from geminga_bookie.racks import BOOKIES
from geminga_broker.cluster.records import JsonObject, ResourceMissing
from geminga_runtime.json_text import BadJson, read_json
from geminga_runtime.metadata.api import MUST_NOT_EXIST, BadVersion, MetadataError, MetadataStore

Groups = dict[str, dict[str, JsonObject]]
"""By group, by bookie: its `rack` and `hostname`, and what others put beside them."""


class BookieRacks:
    """The record at `/bookies`. All methods raise MetadataError, also for a broken record."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def groups(self) -> Groups:
        """All that is set."""
        return (await self._read())[0]

    async def bookie(self, bookie_id: str) -> JsonObject:
        """What is set for one bookie. Raises ResourceMissing."""
        for members in (await self.groups()).values():
            if bookie_id in members:
                return members[bookie_id]
        raise ResourceMissing(bookie_id)

    async def put(self, bookie_id: str, group: str, info: JsonObject) -> None:
        """Set a bookie's rack. It leaves the group that it was in."""

        def change(groups: Groups) -> None:
            _remove(groups, bookie_id)
            groups.setdefault(group, {})[bookie_id] = info

        await self._update(change)

    async def remove(self, bookie_id: str) -> None:
        """Forget a bookie's rack and group. Raises ResourceMissing."""

        def change(groups: Groups) -> None:
            if not _remove(groups, bookie_id):
                raise ResourceMissing(bookie_id)

        await self._update(change)

    async def _read(self) -> tuple[Groups, int]:
        node = await self._store.get(BOOKIES)
        if node is None:
            return {}, MUST_NOT_EXIST
        try:
            found = read_json(node.value, Groups) if node.value.strip() else {}
        except BadJson as error:
            raise MetadataError(f"{BOOKIES} can't be read: {error}") from None
        return found, node.stat.version

    async def _update(self, change: Callable[[Groups], None]) -> None:
        while True:
            groups, version = await self._read()
            change(groups)
            ordered = {name: dict(sorted(groups[name].items())) for name in sorted(groups)}
            try:
                await self._store.put(BOOKIES, msgspec.json.encode(ordered), version)
            except BadVersion:
                continue
            return


def _remove(groups: Groups, bookie_id: str) -> bool:
    """Whether it was in a group. Groups without bookies go too."""
    found = False
    for name in list(groups):
        found |= groups[name].pop(bookie_id, None) is not None
        if not groups[name]:
            del groups[name]
    return found
