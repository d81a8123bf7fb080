"""Tests of the metadata stores."""
