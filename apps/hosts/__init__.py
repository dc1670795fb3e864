"""Hosts that get no new jobs: excluded for a while, by a person or because they fail every job."""
