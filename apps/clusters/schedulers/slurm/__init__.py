"""The adapter for Slurm 22.05 and later: spool, accounting, and output paths."""
