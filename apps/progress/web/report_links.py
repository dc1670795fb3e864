"""Links from the figures of a report to the current lists of their jobs."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.models import KnownError
from apps.jobs.enums import ANY_FAILURE, NONE, NOT_COMPLETED
from apps.jobs.models import Job
from apps.production.models import Request


def with_links(report: Mapping[str, Any], *, request: Request) -> dict[str, Any]:
    """Return the report with `links` in `total` and in each table row, by kind of list.

    Causes have the present `title` of their known error, empty without one.
    """
    of_request = {"request": request.key, "experiment": request.experiment.key}
    stages = []
    for stage in report["stages"]:
        links = _to_jobs({**of_request, "stage": stage["stage"] or NONE})
        stages.append({**stage, "links": links})
    sites = []
    for site in report["sites"]:
        links = _to_jobs({**of_request, "site": site["site"] or NONE})
        sites.append({**site, "links": links})
    titles = _titles_of_known_errors(cause["cause"] for cause in report["causes"])
    causes = []
    for cause in report["causes"]:
        links = {"jobs": _to_verdicts(of_request, cause)}
        causes.append({**cause, "title": titles.get(cause["cause"], ""), "links": links})
    slowest = []
    for job in report["slowest"]:
        slowest.append({**job, "url": Job(pk=job["id"]).get_absolute_url()})
    return {
        **report,
        "total": {**report["total"], "links": _to_jobs(of_request)},
        "stages": stages,
        "sites": sites,
        "causes": causes,
        "slowest": slowest,
    }


def _titles_of_known_errors(ids: Iterable[str]) -> dict[str, str]:
    known_errors = KnownError.objects.filter(id__in=set(ids))
    return dict(known_errors.values_list("id", "title"))


def _to_jobs(query: Mapping[str, str]) -> dict[str, str]:
    jobs = reverse("jobs:list")
    states = {"completed": JobState.COMPLETED.value, "failed": ANY_FAILURE, "wasted": NOT_COMPLETED}
    links = {"jobs": f"{jobs}?{urlencode(query)}"}
    for name, state in states.items():
        links[name] = f"{jobs}?{urlencode({'state': state, **query})}"
    return links


def _to_verdicts(query: Mapping[str, str], cause: Mapping[str, str]) -> str:
    of_cause = {
        "verdict": cause["verdict"],
        "cause": cause["cause"] or NONE,
        "service": cause["service"] or NONE,
    }
    return f"{reverse('diagnosis:failed-jobs')}?{urlencode({**of_cause, **query})}"
