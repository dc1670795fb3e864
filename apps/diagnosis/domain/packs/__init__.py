"""Packs of experiments: read, check, propose and approve them, and read the one in force."""
