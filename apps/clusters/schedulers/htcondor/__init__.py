"""HTCondor: the schedd's job queue log and spool, and its history."""
