"""Formats between capture and the portal: batches of captured jobs, and the report of capture."""
