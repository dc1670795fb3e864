"""Slurm, 22.05 and later: its spool, its accounting, and where its jobs write."""
