"""Tests of geminga_broker.session."""
