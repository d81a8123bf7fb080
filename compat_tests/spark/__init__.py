"""The connector in a real Spark: local mode, a standalone cluster, SQL, the documents' tour."""
