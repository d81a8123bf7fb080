"""Policies: the model, what holds for a topic, what enforces it (spec BR-22, BR-23, BR-60)."""
