"""Tests of the shell's commands."""
