"""The catalogue of known errors in the database: rows, changes, and the compiled catalogue."""
