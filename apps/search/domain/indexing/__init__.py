"""Index logs for the search, keep the index equal to the stored logs, and verify it."""
