"""`/admin/v3/transactions`, as Apache's broker answers with transactions switched off."""
