"""Clusters, sites, and the adapters to their schedulers."""
