"""Tests of the ledger client."""
