"""Fixtures that start a part of the system, for every test of its mark."""

from tests.elasticsearch_server import elasticsearch
from tests.kafka_server import kafka
from tests.slurm_server import slurm

__all__ = ["elasticsearch", "kafka", "slurm"]
