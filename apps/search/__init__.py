"""Which lines the logs of jobs have, in which jobs each occurs, and since when."""
