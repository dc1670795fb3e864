"""The fields of a query as conditions on jobs and on archived jobs."""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_

from django.db.models import Exists, OuterRef, Q, QuerySet

from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.archive.domain.store.contents import CLOCK_TOLERANCE
from apps.archive.models import ArchivedJob
from apps.archive.permissions import ENVIRONMENT_ROLES
from apps.jobs.domain.records.jobs import matches_host
from apps.jobs.enums import ANY_FAILURE, FAILED_STATES
from apps.jobs.models import Job
from apps.search.domain.query.clauses import Field, FieldValue, Query


def _state(value: str) -> Q:
    return Q(state__in=sorted(FAILED_STATES) if value == ANY_FAILURE else [value])


def _request(value: str) -> Q:
    # Keys are in capitals, and so is their index.
    return Q(request_key__in={value, value.upper()})


_SHARED: Mapping[Field, Callable[[str], Q]] = {
    Field.USER: lambda value: Q(user=value),
    Field.REQUEST: _request,
    Field.STAGE: lambda value: Q(stage__iexact=value),
    Field.STATE: _state,
    Field.EXPERIMENT: lambda value: Q(experiment__key__iexact=value),
    Field.CLUSTER: lambda value: Q(cluster__name=value),
}
#: What accounting alone knows: of an archived job, one of its tasks must fulfil it.
_ACCOUNTED: Mapping[Field, Callable[[str], Q]] = {
    Field.HOST: matches_host,
    Field.SITE: lambda value: Q(site__name__iexact=value),
    Field.RELEASE: lambda value: Q(release=value),
    Field.VERDICT: lambda value: Q(verdict__verdict=value),
    Field.EXIT: lambda value: Q(exit_code=int(value)),
}


def visible_jobs(query: Query, user: User) -> QuerySet[Job] | None:
    """Return the jobs that the user may see and that fulfil the fields; None if all jobs do."""
    jobs = Job.objects.visible_to(user)
    conditions = _conditions(query, {**_SHARED, **_ACCOUNTED})
    if not conditions and scope_of(user).sees_all:
        return None
    return jobs.filter(*conditions)


def visible_archived_jobs(query: Query, user: User) -> QuerySet[ArchivedJob]:
    """Return the archived jobs that the user may see and that fulfil the fields."""
    archived_jobs = ArchivedJob.objects.visible_to(user).filter(*_conditions(query, _SHARED))
    tasks = Job.objects.visible_to(user).filter(
        cluster=OuterRef("cluster"),
        spool_id=OuterRef("job_id"),
        submitted_at__gte=OuterRef("submitted_at") - CLOCK_TOLERANCE,
        submitted_at__lte=OuterRef("submitted_at") + CLOCK_TOLERANCE,
    )
    for field in _ACCOUNTED:
        for values, negated in _grouped(query, field):
            of_a_task = Exists(tasks.filter(_any_of(_ACCOUNTED[field], values)))
            archived_jobs = archived_jobs.filter(~of_a_task if negated else of_a_task)
    return archived_jobs


def with_visible_environment(
    archived_jobs: QuerySet[ArchivedJob], user: User
) -> QuerySet[ArchivedJob]:
    """Keep the archived jobs whose environments the user may see, as `sees_environment` says."""
    scope = scope_of(user)
    if scope.sees_all:
        return archived_jobs
    experiments = []
    for experiment in scope.experiment_keys:
        if any(scope.has(role, experiment) for role in ENVIRONMENT_ROLES):
            experiments.append(experiment)
    return archived_jobs.filter(experiment__in=experiments)


def _conditions(query: Query, fields: Mapping[Field, Callable[[str], Q]]) -> list[Q]:
    conditions = []
    for field, condition in fields.items():
        for values, negated in _grouped(query, field):
            matching = _any_of(condition, values)
            conditions.append(~matching if negated else matching)
    return conditions


def _grouped(query: Query, field: Field) -> list[tuple[list[FieldValue], bool]]:
    """Return the clauses of one field, those with and without a minus, if there are any."""
    groups = []
    for negated in (False, True):
        if values := [clause for clause in query.of(field) if clause.negated is negated]:
            groups.append((values, negated))
    return groups


def _any_of(condition: Callable[[str], Q], values: list[FieldValue]) -> Q:
    return reduce(or_, [condition(clause.value) for clause in values])
