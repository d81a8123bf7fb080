"""Tests of the managed ledger and its cursors."""
