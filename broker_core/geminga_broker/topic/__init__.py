"""A topic: its producers, the log it publishes to, what it tells of itself (spec BR-08, BR-20)."""
