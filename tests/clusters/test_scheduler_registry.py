"""Every adapter that is named can be loaded."""

from apps.clusters.schedulers.registry import SCHEDULERS


def test_every_built_in_adapter_loads_under_its_own_name() -> None:
    working = SCHEDULERS.working()

    assert {"htcondor", "simulated", "slurm", "torque"} <= working.keys() == set(SCHEDULERS.names())
    assert {name: adapter.name for name, adapter in working.items()} == {
        name: name for name in working
    }
