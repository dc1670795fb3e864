"""Makers of what tests need, a module per subject.

They call the functions that make the real ones.
"""
