"""`geminga._admin.families/__init__` of the blocking face.

Made by tools/faces.py: don't edit.
"""
