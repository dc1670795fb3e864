"""Fixtures that start a part of the system, for every test of its mark."""

from tests.slurm_server import slurm

__all__ = ["slurm"]
