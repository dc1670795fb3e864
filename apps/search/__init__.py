"""Search in logs and scripts; which jobs wrote a line of a log, and since when."""
