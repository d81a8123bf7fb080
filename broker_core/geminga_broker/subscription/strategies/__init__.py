"""Receivers of entries by subscription type: exclusive, failover, shared, key_shared."""
