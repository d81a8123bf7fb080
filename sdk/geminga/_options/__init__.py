"""Checks of arguments, and options of producers and consumers."""
