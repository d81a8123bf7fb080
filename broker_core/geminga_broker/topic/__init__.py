"""Topics: producers, publishing, deduplication, statistics (spec BR-08, BR-20)."""
