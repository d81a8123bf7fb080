"""The ledger client: create, append, read, recover, delete."""
