"""Scouts: the first jobs of a stage run before the others, which wait for what they show."""
