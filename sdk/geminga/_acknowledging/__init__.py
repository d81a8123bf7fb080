"""Acknowledgements, from the program's call to the broker's receipt."""
