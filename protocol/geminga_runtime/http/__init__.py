"""HTTP from the side of a client: requests, answers, bounded reading."""
