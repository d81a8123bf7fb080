"""Tests of auto-recovery."""
