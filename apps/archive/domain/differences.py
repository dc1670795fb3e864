"""The difference of two archived jobs, and the job with which somebody most likely wants to compare one."""

import re
from dataclasses import dataclass, field
from datetime import timedelta

from django.db.models import Q

from apps.accounts.models import User
from apps.archive.domain.comparison import Change, Row, compare_lines, compare_variables, normalised
from apps.archive.domain.store.contents import jobs_for_list, shown_environment, shown_script
from apps.archive.models import ArchivedJob
from apps.archive.permissions import sees_environment
from apps.clusters.schedulers.base import JobState

#: Equal lines that are shown around each difference.
CONTEXT = 3
LOOK_BACK = timedelta(days=90)
#: Variables that differ in every run and say nothing.
_NOISE = re.compile(
    r"_|SHLVL|PWD|OLDPWD|TMPDIR|HOSTNAME|LS_COLORS|DISPLAY|WINDOW(ID|PATH)?|KRB5CCNAME|INVOCATION_ID|JOURNAL_STREAM"
    r"|SSH_\w+|XDG_\w+|DBUS_\w+|GPG_\w+|PBS_JOBID|PBS_JOBCOOKIE|PBS_NODEFILE|_CONDOR_\w+|SLURMD_\w+"
    r"|SLURM_(JOB_?ID|ARRAY_(JOB|TASK)_ID|JOB_(START|END)_TIME|(JOB_)?NODELIST|NODEID|LOCALID|PROCID|GTIDS|TASK_PID"
    r"|STEP_?\w*|SRUN_\w+|LAUNCH_\w+|TOPOLOGY_\w+|(CPU|MEM)_BIND\w*|PRIO_PROCESS|SUBMIT_(HOST|DIR)|WORKING_CLUSTER)"
)


@dataclass(frozen=True)
class Fold:
    """Equal lines that are not shown."""

    count: int
    kind: str = "fold"


@dataclass(frozen=True)
class Difference:
    """Two jobs side by side. `rows` is None where a script is damaged, `changes` where the reader may not see them.

    `same_script` and `same_environment` are about the bytes; `whole` is False where only the beginnings were compared.
    """

    left: ArchivedJob
    right: ArchivedJob
    same_script: bool
    same_environment: bool
    rows: list[Row] | None
    changes: list[Change] | None
    noise: list[Change] = field(default_factory=list)
    equal_variables: int = 0
    whole: bool = True

    @property
    def differing_rows(self) -> list[Row] | None:
        return None if self.rows is None else [row for row in self.rows if row.kind != "equal"]

    @property
    def differing_lines(self) -> int:
        return len(self.differing_rows or ())

    def folded(self) -> list[Row | Fold]:
        """Return the rows with long runs of equal ones folded."""
        rows = self.rows or []
        near = {at + by for at, row in enumerate(rows) if row.kind != "equal" for by in range(-CONTEXT, CONTEXT + 1)}
        shown: list[Row | Fold] = []
        hidden = 0
        for at, row in enumerate(rows):
            if at in near:
                if hidden:
                    shown.append(Fold(hidden))
                hidden = 0
                shown.append(row)
            else:
                hidden += 1
        return [*shown, Fold(hidden)] if hidden else shown


def difference(left: ArchivedJob, right: ArchivedJob, *, user: User, exact: bool) -> Difference:
    """Compare two jobs; unless `exact`, what differs in every run is equal."""
    scripts = shown_script(left), shown_script(right)
    rows, whole = None, True
    if scripts[0] and scripts[1]:
        keys = [_keys(script.lines, job, exact) for script, job in zip(scripts, (left, right), strict=True) if script]
        rows = compare_lines(scripts[0].lines, scripts[1].lines, *keys)
        whole = scripts[0].whole and scripts[1].whole
    changes, noise, equal = _environments(left, right, user, exact)
    return Difference(
        left=left,
        right=right,
        same_script=left.script_id == right.script_id,
        same_environment=left.environment_id == right.environment_id,
        rows=rows,
        changes=changes,
        noise=noise,
        equal_variables=equal,
        whole=whole,
    )


def _keys(lines: list[str], job: ArchivedJob, exact: bool) -> list[str]:
    return lines if exact else [normalised(line, job_id=job.job_id) for line in lines]


def _environments(
    left: ArchivedJob, right: ArchivedJob, user: User, exact: bool
) -> tuple[list[Change] | None, list[Change], int]:
    """Return what differs, what differs without meaning, and how many variables are equal."""
    if not (sees_environment(user, left) and sees_environment(user, right)):
        return None, [], 0
    shown = shown_environment(left), shown_environment(right)
    if not (shown[0] and shown[1]):
        return None, [], 0
    sides = [{variable.name: variable.value for variable in side.variables} for side in shown if side]
    changes = compare_variables(*sides)
    differing = [change for change in changes if change.kind != "equal"]
    noise = [] if exact else [change for change in differing if _is_noise(change, left, right)]
    return [change for change in differing if change not in noise], noise, len(changes) - len(differing)


def _is_noise(change: Change, left: ArchivedJob, right: ArchivedJob) -> bool:
    if _NOISE.fullmatch(change.name):
        return True
    same = normalised(change.left, job_id=left.job_id) == normalised(change.right, job_id=right.job_id)
    return change.kind == "changed" and same


def last_success(job: ArchivedJob, *, user: User) -> tuple[ArchivedJob, str] | None:
    """Return the last job before this one that completed and is of the same kind, and in words of which kind."""
    done = jobs_for_list(user).filter(state=JobState.COMPLETED.value, submitted_at__gte=job.submitted_at - LOOK_BACK)
    done = done.filter(submitted_at__lte=job.submitted_at).exclude(pk=job.pk).defer(None)
    for words, condition in _kinds(job):
        found = done.filter(condition).order_by("-submitted_at", "-pk").first()
        if found:
            return found, words
    return None


def _kinds(job: ArchivedJob) -> list[tuple[str, Q]]:
    kinds = []
    if job.request_key:
        same_request = Q(request_key=job.request_key, stage=job.stage)
        kinds.append((f"the last success of {job.request_key} {job.stage}".rstrip(), same_request))
    if job.user and job.name:
        kinds.append((f"{job.user}’s last success named {job.name}", Q(user=job.user, name=job.name)))
    if job.stage and job.experiment_id:
        kinds.append((f"the last success of stage {job.stage}", Q(experiment=job.experiment_id, stage=job.stage)))
    if job.user:
        kinds.append((f"{job.user}’s last success", Q(user=job.user)))
    return kinds
