"""GPUs and energy of jobs, from the trackable resources (TRES) of sacct.

Slurm records them where `AccountingStorageTRES` has `gres/gpu`, which adds `gres/gpuutil` and
`gres/gpumem`, and energy where `AcctGatherEnergyType` is set: https://slurm.schedmd.com/tres.html
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from apps.clusters.schedulers.slurm.sacct import read_number, read_size

_GPU = "gres/gpu"
_USE = "gres/gpuutil"
_MEMORY = "gres/gpumem"


class GpuFigures(TypedDict):
    """The figures of a job record on GPUs and energy."""

    gpus: int | None
    gpu_share: float | None
    max_gpu_memory_bytes: int | None
    energy_joules: int | None


def gpu_figures(job: Mapping[str, str], steps: Sequence[Mapping[str, str]]) -> GpuFigures:
    """Return the figures of a job from its row and the rows of its steps; None where unknown."""
    gpus = _gpus(job["AllocTRES"])
    percent = None
    memory = None
    energy_of_steps = 0
    for row in (job, *steps):
        percent = _larger(percent, read_number(_tres(row["TRESUsageInTot"]).get(_USE, "")))
        memory = _larger(memory, read_size(_tres(row["TRESUsageInMax"]).get(_MEMORY, "")))
        if row is not job:
            energy_of_steps += read_number(row["ConsumedEnergyRaw"]) or 0
    share = None
    if gpus and percent is not None:
        # The use of all GPUs of a step is added up: 200 for two that are busy.
        share = min(1.0, percent / 100 / gpus)
    energy = max(read_number(job["ConsumedEnergyRaw"]) or 0, energy_of_steps)
    return {
        "gpus": gpus,
        "gpu_share": share,
        "max_gpu_memory_bytes": memory if gpus else None,
        # Zero means that nothing measures it.
        "energy_joules": energy or None,
    }


def _larger(known: int | None, value: int | None) -> int | None:
    if known is None or value is None:
        return value if known is None else known
    return max(known, value)


def _gpus(tres: str) -> int | None:
    """Return the number of GPUs in AllocTRES; None if it is empty.

    Some sites record only types of GPUs, such as `gres/gpu:a100=2`.
    """
    if not tres:
        return None
    counts = _tres(tres)
    if _GPU in counts:
        return read_number(counts[_GPU]) or 0
    gpus = 0
    for name, count in counts.items():
        if name.startswith(f"{_GPU}:"):
            gpus += read_number(count) or 0
    return gpus


def _tres(text: str) -> dict[str, str]:
    """Return the counts of `cpu=8,mem=16G,gres/gpu=2` by name."""
    counts = {}
    for item in text.split(","):
        name, _, count = item.partition("=")
        counts[name] = count
    return counts
