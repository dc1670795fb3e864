"""Adapters for batch systems. `base` defines the protocol; every other module is one scheduler."""
