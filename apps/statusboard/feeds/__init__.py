"""Formats of monitoring feeds, one module each; `base` has the protocol."""
