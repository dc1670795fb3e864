"""Submission of the jobs of approved requests to clusters, each once."""
