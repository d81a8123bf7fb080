"""From a subscription to the messages that the program takes."""
