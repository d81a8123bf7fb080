"""Who may do what (spec PX-22). Nothing is allowed that no rule allows."""
