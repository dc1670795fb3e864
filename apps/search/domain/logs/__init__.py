"""The stored parts of job logs, and the index of their words."""
