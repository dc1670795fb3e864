"""The sink `kafka://`: one message for each job."""
