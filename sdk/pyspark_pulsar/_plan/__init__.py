"""What a read is made of, found out on the driver: topics, their ends, schemas, ranges, tasks."""
