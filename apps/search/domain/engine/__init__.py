"""Engines of the search: documents in; a query, a scope and a cursor in; a page of hits out."""
