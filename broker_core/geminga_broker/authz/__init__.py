"""Authorization (spec PX-22): without a rule, nothing is allowed."""
