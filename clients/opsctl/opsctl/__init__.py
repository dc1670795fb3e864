"""Command line of the opsportal."""

__version__ = "0.1.0"
