"""What a process tells of itself: how its log is written, dumps of its tasks and memory."""
