"""The catalogue of known errors in the database: its rows, changes of them,
and the compiled catalogue.
"""
