"""Nodes that are given up by who made them."""

from __future__ import annotations

from contextlib import suppress

from geminga_runtime.metadata.api import BadVersion, MetadataStore, NoNode


async def is_own(store: MetadataStore, path: str) -> bool:
    """Whether the node is there, and of this session."""
    node = await store.get(path)
    return node is not None and node.stat.created_by_self


async def delete_own(store: MetadataStore, path: str) -> None:
    """Delete the node unless it is gone, or another's: whoever stood still for long may have a
    successor by now. Raises MetadataError.
    """
    node = await store.get(path)
    if node is not None and node.stat.created_by_self:
        with suppress(NoNode, BadVersion):
            await store.delete(path, node.stat.version)
