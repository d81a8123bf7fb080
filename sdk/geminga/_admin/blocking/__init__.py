"""The blocking form of the admin client; tools/faces.py makes its modules."""
