"""What is kept of the logs of jobs, and the index of its words."""
