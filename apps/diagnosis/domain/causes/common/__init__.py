"""Common causes of many failures: read jobs as columns, then mask the strongest cause in turn."""
