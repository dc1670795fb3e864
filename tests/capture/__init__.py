"""The program `capture`."""
