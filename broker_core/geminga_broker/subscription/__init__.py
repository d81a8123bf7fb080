"""A subscription: members, who gets what, the pump that sends it (spec BR-30 to BR-38)."""
