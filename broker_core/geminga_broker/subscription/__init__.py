"""A subscription: members, dispatch decisions, the pump that sends (spec BR-30 to BR-38)."""
