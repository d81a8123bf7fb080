"""A witness of a process's end: its handle, and the process that it is."""
