"""Tests of geminga_broker.cluster."""
