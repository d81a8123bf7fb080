"""Tests of geminga_broker.change_events."""
