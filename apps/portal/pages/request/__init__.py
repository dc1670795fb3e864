"""The page of a request: `page.py` is its table of contents, the others are its parts."""
