"""The `geminga` command."""
