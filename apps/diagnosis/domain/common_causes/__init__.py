"""Causes over many jobs: read jobs as columns, and peel causes off one after the other."""
