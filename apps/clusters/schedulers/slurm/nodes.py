"""List the hosts of a cluster with scontrol.

The format is that of `slurm_sprint_node_table` (src/api/node_info.c), Slurm 20.11 to 24.05: one
line per node. Slurm does not know CPU models: the option `cpu_models` maps node features to models.
"""

import re
from collections.abc import Iterator, Mapping

from apps.clusters.schedulers.base import HostFacts
from apps.clusters.schedulers.commands import Commands

#: Values of these fields have no spaces, and come before free text such as `Reason` and `Comment`.
_FIELD = re.compile(r"(?:^|\s)(NodeName|NodeAddr|CPUTot|RealMemory|ActiveFeatures)=(\S*)")
_MIB = 2**20


def read_cpu_models(option: str) -> dict[str, str]:
    """Return the CPU model of each feature, from `rome=AMD EPYC 7702, icelake=Xeon Gold 6330`.

    Raises `ValueError`.
    """
    models = {}
    for part in option.split(","):
        feature, equals, model = (text.strip() for text in part.partition("="))
        if part.strip() and not (feature and equals and model):
            raise ValueError(f"option cpu_models: {part.strip()!r} is not FEATURE=MODEL")
        models[feature] = model
    return {feature: model for feature, model in models.items() if feature}


def hosts(commands: Commands, cpu_models: Mapping[str, str]) -> Iterator[HostFacts]:
    """Yield the hosts known to slurmctld, with one command. Raises `SchedulerError`."""
    for line in commands.run("scontrol", "show", "nodes", "--oneliner").splitlines():
        fields: dict[str, str] = {}
        for name, value in _FIELD.findall(line):
            fields.setdefault(name, value)
        if not fields.get("NodeName"):
            continue

        features = fields.get("ActiveFeatures", "").split(",")
        models = []
        for feature in features:
            if feature in cpu_models:
                models.append(cpu_models[feature])
        memory = _number(fields.get("RealMemory"))
        yield HostFacts(
            fields["NodeName"],
            cpu_model=models[0] if models else "",
            address=fields.get("NodeAddr", ""),
            cores=_number(fields.get("CPUTot")),
            memory_bytes=None if memory is None else memory * _MIB,
        )


def _number(text: str | None) -> int | None:
    if text and text.isascii() and text.isdigit():
        return int(text)
    return None
