"""The HTCondor adapter: the schedd's job queue log, spool and history."""
