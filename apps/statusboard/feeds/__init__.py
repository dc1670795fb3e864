"""Formats of monitoring feeds. `base` holds the protocol; each other module is one format."""
