"""Clusters, sites, and the adapters for their schedulers."""
