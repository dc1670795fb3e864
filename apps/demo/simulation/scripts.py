"""Generate the script and environment of a simulated submission as Slurm spools them."""

import struct
from pathlib import Path
from random import Random

import yaml

from apps.clusters.schedulers.simulated import PARTITION
from apps.demo.simulation.workload import SimulatedArray
from apps.demo.simulation.world import STAGES

_TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


def script_of(submission: SimulatedArray, output: Path) -> bytes:
    """Return the submitted script.

    `output` is the path of its log, with Slurm's patterns in the name.
    """
    limit = submission.campaign.limit_seconds
    values = submission.campaign.values | {
        "name": submission.name,
        "partition": PARTITION,
        "limit": f"{limit // 3600:02d}:{limit % 3600 // 60:02d}:00",
        "array": f"#SBATCH --array=0-{submission.tasks - 1}\n" if submission.is_array else "",
        "output": output,
        "comment": submission.comment,
    }
    fetches = any(phase.name == "fetch input" for phase in STAGES[submission.campaign.kind])
    return str(
        _TEXTS["script"].format(**values, fetch=_TEXTS["fetch"].format(**values) if fetches else "")
    ).encode()


def variables_of(submission: SimulatedArray, random: Random) -> list[str]:
    """Return the environment of the submission, one `NAME=value` per item.

    Without a request it has none of the portal's variables. Jobs of requests have their token in a
    file, so that they can run again from the archive. Other jobs have it in the environment, where
    it is masked.
    """
    number = sum(map(ord, submission.campaign.user))
    values = submission.campaign.values | {
        "name": submission.name,
        "uid": 20_000 + number % 500,
        "submit_host": 1 + number % 3,
        "token": random.getrandbits(96),
    }
    left_out: tuple[str, ...] = ("BEARER_TOKEN=",)
    if not submission.campaign.request:
        left_out = ("OPSPORTAL_", "BEARER_TOKEN_FILE=")
    variables = []
    for line in _TEXTS["environment"]:
        if not line.startswith(left_out):
            variables.append(line.format_map(values))
    return variables


def spooled_environment(variables: list[str]) -> list[bytes]:
    """Return the chunks in which slurmctld writes the environment.

    The count is followed by each variable with its NUL.
    """
    return [
        struct.pack("=I", len(variables)),
        *(variable.encode() + b"\0" for variable in variables),
    ]
