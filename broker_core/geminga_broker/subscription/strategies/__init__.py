"""Who gets what, by subscription type: exclusive, failover, shared, key_shared."""
