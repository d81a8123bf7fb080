"""Schemas of topics: storage, compatibility and enforcement."""
