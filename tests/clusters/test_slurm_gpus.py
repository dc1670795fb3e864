"""GPUs and energy in rows of sacct."""

import pytest

from apps.clusters.schedulers.slurm.gpus import gpu_figures

NAMES = ("AllocTRES", "TRESUsageInTot", "TRESUsageInMax", "ConsumedEnergyRaw")


def row(**values: str) -> dict[str, str]:
    return {**dict.fromkeys(NAMES, ""), **values}


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("", None),
        ("billing=4,cpu=4,mem=16G,node=1", 0),
        ("cpu=4,gres/gpu=2,gres/gpu:a100=2,mem=16G", 2),
        ("gres/gpu:a100-sxm4-80gb=4", 4),
        ("gres/gpu:1g.10gb=2,gres/gpu:A100=1", 3),
        ("gres/gpumem=80G,gres/gpuutil=0,cpu=8", 0),
        ("gres/gpu=many", 0),
    ],
)
def test_number_of_gpus(tres, gpus):
    assert gpu_figures(row(AllocTRES=tres), [])["gpus"] == gpus


def test_use_is_that_of_the_busiest_step_as_a_share_of_all_gpus():
    job = row(AllocTRES="gres/gpu=4", ConsumedEnergyRaw="500")
    steps = [
        row(TRESUsageInTot="cpu=00:10:00,gres/gpuutil=20", ConsumedEnergyRaw="100"),
        row(
            TRESUsageInTot="gres/gpuutil=300",
            TRESUsageInMax="gres/gpumem=2048M,mem=1G",
            ConsumedEnergyRaw="7000",
        ),
    ]
    assert gpu_figures(job, steps) == {
        "gpus": 4,
        "gpu_share": 0.75,
        "max_gpu_memory_bytes": 2048 * 2**20,
        "energy_joules": 7100,
    }


def test_what_nobody_measured_is_unknown():
    nothing = {"gpu_share": None, "max_gpu_memory_bytes": None, "energy_joules": None}
    steps = [row(TRESUsageInTot="gres/gpuutil=0", TRESUsageInMax="gres/gpumem=0")]
    assert gpu_figures(row(AllocTRES="cpu=1"), steps) == {"gpus": 0, **nothing}
    assert gpu_figures(row(), []) == {"gpus": None, **nothing}
    assert gpu_figures(row(AllocTRES="gres/gpu=1"), steps)["gpu_share"] == 0.0
    assert gpu_figures(row(AllocTRES="gres/gpu=1", ConsumedEnergyRaw="0"), [])["gpus"] == 1
