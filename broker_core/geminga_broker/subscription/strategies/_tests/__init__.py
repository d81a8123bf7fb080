"""Tests of geminga_broker.subscription.strategies."""
