"""Packs of experiments: read and checked, proposed and approved,
and the markers of the one in force.
"""
