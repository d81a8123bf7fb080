"""Consumers, from the subscription to the messages that the program takes."""
