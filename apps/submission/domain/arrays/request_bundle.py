"""The scripts of a request as one tar, to submit to Slurm by hand."""

import shlex
from datetime import datetime

from apps.clusters.schedulers.base import BatchJob
from apps.clusters.schedulers.slurm.submission import options_of
from apps.core.domain.exports.tar import TarMember, write_tar
from apps.core.errors import InvalidFields
from apps.production.domain.content.scan import scan_of
from apps.production.domain.content.stages import content_of
from apps.production.models import Request
from apps.submission.domain.arrays.files import stages_with_files
from apps.submission.domain.arrays.scripts import StagePlan, make_stage_plan, write_script

ARRAY_SIZE = 1000
_README = """Jobs of {key}: {title}

submit.sh sends every stage with sbatch, each to start when all jobs of the one before have \
completed, of a
parameter scan those of the same point:

    ./submit.sh [options of sbatch for every stage, such as --account=nova --partition=long]

stage-N.sh is the script of stage N; of a parameter scan, stage-N-point-M.sh is that of point M.
Task n of its array is job first + n; `first` is its argument, or 0.
The portal finds the jobs by OPSPORTAL_REQUEST and OPSPORTAL_STAGE in their environment, and \
counts them
if their account or user belongs to the experiment. It does not know when this is submitted: do \
it once, and
not if the portal submits the jobs itself.
"""


def write_bundle(*, request: Request, at: datetime) -> bytes:
    """Return a tar with one script for each stage, a README and a script that submits them.

    Raises `InvalidFields`.
    """
    plans = _plans(request)
    if any(plan.takes_files for plan in plans):
        raise InvalidFields(
            {
                "workflow": [
                    "Jobs of this request are made of files as they arrive; they cannot be bundled."
                ]
            }
        )
    if stages_with_files(request):
        raise InvalidFields(
            {"workflow": ["The portal tells the jobs which files to read; they cannot be bundled."]}
        )
    files = {_script_name(plan): write_script(plan, first=None) for plan in plans}
    files["submit.sh"] = _submit_script(plans)
    files["README"] = _README.format(key=request.key, title=" ".join(request.title.split()))

    members = []
    for name, text in files.items():
        mode = 0o755 if name.endswith(".sh") else 0o644
        members.append(
            TarMember(
                f"{request.key}/{name}", text.encode(), mode=mode, modified_at=int(at.timestamp())
            )
        )
    return b"".join(write_tar(members))


def _plans(request: Request) -> list[StagePlan]:
    """Return the plan of each stage, or of each stage at each point of a scan."""
    content = content_of(request)
    scan = scan_of(content)
    plans = []
    for position, stage in enumerate(content.stages):
        for point in range(scan.count):
            job = point * scan.jobs_each(stage.jobs)
            plans.append(
                make_stage_plan(key=request.key, content=content, position=position, job=job)
            )
    return plans


def _script_name(plan: StagePlan) -> str:
    point = f"-point-{plan.point + 1}" if plan.points > 1 else ""
    return f"stage-{plan.position + 1}{point}.sh"


def _submit_script(plans: list[StagePlan]) -> str:
    lines = ["#!/bin/bash", "set -eu", 'cd -- "$(dirname -- "$0")"']
    for plan in plans:
        environment = {
            name: text for name, text in plan.variables.items() if name != "OPSPORTAL_RELEASE"
        }
        lines += [f"export {name}={shlex.quote(text)}" for name, text in environment.items()]
        mine = f"stage_{plan.position + 1}_point_{plan.point + 1}"
        after = ""
        if plan.position:
            after = f'"--dependency=afterok$stage_{plan.position}_point_{plan.point + 1}" '
        lines += [f"{mine}="]
        jobs = range(plan.jobs)[plan.point * plan.jobs_each :][: plan.jobs_each]
        for first in jobs[::ARRAY_SIZE]:
            job = BatchJob(
                name=f"{plan.request_key}.{plan.position + 1}",
                script="",
                tasks=min(ARRAY_SIZE, jobs[-1] + 1 - first),
                time_limit_seconds=plan.wall_seconds,
                memory_bytes=plan.memory_bytes,
                environment=environment,
            )
            sbatch = (
                f'sbatch {shlex.join(options_of(job))} {after}"$@" {_script_name(plan)} {first}'
            )
            lines += [
                f"id=$({sbatch})",
                f'{mine}="${mine}:${{id%%;*}}"',
                f'echo "stage {plan.position + 1}: job $id"',
            ]
    return "\n".join(lines) + "\n"
