"""Authorization (spec PX-22): only what a rule allows is allowed."""
