"""Ledgers over bookie ports and a metadata store (spec BK-20 to BK-27)."""

from geminga_bookie.client.client import BookkeeperClient

__all__ = ["BookkeeperClient"]
