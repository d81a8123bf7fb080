"""The plan of a read, made on the driver: topics, their ends, schemas, ranges, tasks."""
