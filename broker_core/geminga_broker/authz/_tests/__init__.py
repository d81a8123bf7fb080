"""Tests of geminga_broker.authz."""
