"""Tests of geminga_broker.admin."""
