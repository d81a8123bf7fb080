"""Policies: their model, resolution and enforcement (spec BR-22, BR-23, BR-60)."""
