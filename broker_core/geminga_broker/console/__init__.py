"""The console: the broker's pages for a browser (spec OP-06). Everything that they show or do is a
call of the REST API with the credentials of whoever looks.
"""
