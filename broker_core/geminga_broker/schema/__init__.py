"""Schemas of topics: where they are kept, which may follow which, and who must have one."""
