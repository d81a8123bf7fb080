"""Authentication providers for broker and proxy (spec PX-20, PX-21)."""
