"""The tasks of a query: read ranges of topics as Arrow record batches."""
