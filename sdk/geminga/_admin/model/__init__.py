"""Types of bodies and answers of the admin REST."""
