"""Formats of monitoring feeds, one per module; `base` defines the protocol."""
