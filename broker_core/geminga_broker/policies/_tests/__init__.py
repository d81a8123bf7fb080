"""Tests of geminga_broker.policies."""
