"""Entry logs: their bytes, writing and reading them, compaction, an index made anew from them."""
