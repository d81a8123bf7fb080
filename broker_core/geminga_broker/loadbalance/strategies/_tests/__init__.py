"""Tests of geminga_broker.loadbalance.strategies."""
