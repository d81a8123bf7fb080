"""Reading ranges of topics as Arrow record batches: what the tasks of a query do."""
