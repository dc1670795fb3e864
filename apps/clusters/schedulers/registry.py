"""The registry of scheduler adapters by name."""

from apps.clusters.schedulers.base import Scheduler
from apps.core.domain.plugins import Registry

SCHEDULERS: Registry[type[Scheduler]] = Registry(
    group="opsportal.schedulers",
    builtins={
        "htcondor": "apps.clusters.schedulers.htcondor.scheduler:HTCondor",
        "simulated": "apps.clusters.schedulers.simulated:Simulated",
        "slurm": "apps.clusters.schedulers.slurm.scheduler:Slurm",
        "torque": "apps.clusters.schedulers.torque.scheduler:Torque",
    },
)
