"""Adapters to batch systems. `base` holds the protocol; each other module is one scheduler."""
