"""Tests of geminga_broker.loadbalance.store."""
