"""The differences between two archived jobs, and the best job to compare with."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Q

from apps.accounts.models import User
from apps.archive.domain.comparison import ComparedJob, DiffRow, VariableChange, compare
from apps.archive.domain.store.contents import (
    archived_jobs_for_list,
    shown_environment,
    shown_script,
)
from apps.archive.models import ArchivedJob
from apps.archive.permissions import sees_environment
from apps.clusters.schedulers.base import JobState

#: Number of equal lines shown around each difference.
CONTEXT = 3
LOOK_BACK = timedelta(days=90)


@dataclass(frozen=True)
class FoldedLines:
    """Equal lines that are not shown."""

    count: int
    kind: str = "fold"


@dataclass(frozen=True)
class JobDifference:
    """Two jobs side by side.

    `rows` is None if a script is damaged, `changes` if the reader may not see them. `same_script`
    and `same_environment` compare the bytes. `whole` is False if only the beginnings were compared.
    `plain` is as in `JobComparison`.
    """

    left: ArchivedJob
    right: ArchivedJob
    same_script: bool
    same_environment: bool
    rows: list[DiffRow] | None
    changes: list[VariableChange] | None
    noise: list[VariableChange]
    equal_variables: int
    whole: bool
    plain: bool

    @property
    def differing_rows(self) -> list[DiffRow] | None:
        if self.rows is None:
            return None
        return [row for row in self.rows if row.kind != "equal"]

    @property
    def differing_lines(self) -> int:
        return len(self.differing_rows or ())

    def folded(self) -> list[DiffRow | FoldedLines]:
        """Return the rows with long runs of equal rows folded."""
        return fold(self.rows or [])


def fold(rows: Sequence[DiffRow]) -> list[DiffRow | FoldedLines]:
    """Return rows with long runs of equal rows folded."""
    near: set[int] = set()
    for index, row in enumerate(rows):
        if row.kind != "equal":
            near.update(range(index - CONTEXT, index + CONTEXT + 1))

    shown: list[DiffRow | FoldedLines] = []
    hidden = 0
    for index, row in enumerate(rows):
        if index in near:
            if hidden:
                shown.append(FoldedLines(hidden))
            hidden = 0
            shown.append(row)
        else:
            hidden += 1
    return [*shown, FoldedLines(hidden)] if hidden else shown


def difference(left: ArchivedJob, right: ArchivedJob, *, user: User, exact: bool) -> JobDifference:
    """Compare two jobs; unless `exact`, values that differ in every run count as equal."""
    sees = sees_environment(user, left) and sees_environment(user, right)
    scripts = [shown_script(job) for job in (left, right)]
    sides = []
    for job, script in zip((left, right), scripts, strict=True):
        shown = shown_environment(job) if sees else None
        variables = None
        if shown:
            variables = {variable.name: variable.value for variable in shown.variables}
        sides.append(ComparedJob(job.job_id, script.lines if script else None, variables))

    comparison = compare(*sides, exact=exact)
    return JobDifference(
        left=left,
        right=right,
        same_script=left.script_id == right.script_id,
        same_environment=left.environment_id == right.environment_id,
        rows=comparison.rows,
        changes=comparison.changes,
        noise=comparison.noise,
        equal_variables=comparison.equal_variables,
        whole=all(script is None or script.whole for script in scripts),
        plain=comparison.plain,
    )


def last_success(job: ArchivedJob, *, user: User) -> tuple[ArchivedJob, str] | None:
    """Return the newest earlier job of the same kind that completed, and the kind as text."""
    completed = archived_jobs_for_list(user).filter(
        state=JobState.COMPLETED.value,
        submitted_at__gte=job.submitted_at - LOOK_BACK,
    )
    earlier = completed.filter(submitted_at__lte=job.submitted_at).exclude(pk=job.pk).defer(None)
    for description, condition in _kinds(job):
        newest = earlier.filter(condition).order_by("-submitted_at", "-pk").first()
        if newest:
            return newest, description
    return None


def _kinds(job: ArchivedJob) -> list[tuple[str, Q]]:
    """Return the kinds of a job, closest first: a description and a condition for each."""
    kinds = []
    if job.request_key:
        same_request = Q(request_key=job.request_key, stage=job.stage)
        kinds.append((f"the last success of {job.request_key} {job.stage}".rstrip(), same_request))
    if job.user and job.name:
        kinds.append(
            (f"{job.user}’s last success named {job.name}", Q(user=job.user, name=job.name))
        )
    if job.stage and job.experiment_id:
        kinds.append(
            (
                f"the last success of stage {job.stage}",
                Q(experiment=job.experiment_id, stage=job.stage),
            )
        )
    if job.user:
        kinds.append((f"{job.user}’s last success", Q(user=job.user)))
    return kinds
