"""Metadata store: one interface (spec CL-01), several stores."""
