"""Crashes, torn files, hostile peers and bad settings, at the level of the whole process."""
