"""The operations of the admin REST, one class for each kind of thing. A method's declaration is all
of it: `declared.py`.
"""
