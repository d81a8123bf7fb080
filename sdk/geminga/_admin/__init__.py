"""The admin client (spec SDK-48): operations as declarations, and what sends them.

`families/` declares the operations: a method's signature, path and body are the whole of it.
`transport.py` sends requests; `model/` has the types of bodies and answers.
"""
