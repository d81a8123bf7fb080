"""From a message that is sent to its receipt."""
