"""Tests of geminga_broker.metrics."""
