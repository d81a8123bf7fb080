"""Tests of geminga_broker.topic."""
