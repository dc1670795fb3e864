"""Downloads of many jobs as one tar, for pages and API."""

from django.db.models import QuerySet
from django.http import QueryDict, StreamingHttpResponse

from apps.accounts.models import User
from apps.archive.domain.bundle import MOST_JOBS, BundleTooLarge, check_size, tar_of
from apps.archive.domain.store.contents import archived_jobs_for_list
from apps.archive.filters import ArchivedJobs
from apps.archive.models import ArchivedJob
from apps.jobs.enums import ProbeJobs


def read_filters(query: QueryDict) -> QueryDict:
    """Return the filters alone: without a page's place and order, and without selected jobs."""
    filters = query.copy()
    for name in ("after", "id", "sort"):
        filters.pop(name, None)
    return filters


def is_filtered(query: QueryDict) -> bool:
    """Return whether a query asks for certain jobs, not only for all with or without probe jobs."""
    names = {name for name, value in query.items() if value and name != "sort"}
    if query.get("probes") in (ProbeJobs.HIDE, ProbeJobs.SHOW):
        names.discard("probes")
    return bool(names)


def selected_jobs(user: User, query: QueryDict) -> QuerySet[ArchivedJob]:
    """Return the jobs of `?id=…&id=…` that the person may see, newest first."""
    keys = set()
    for key in query.getlist("id"):
        if key.isdecimal() and len(key) < 19:
            keys.add(int(key))
    return archived_jobs_for_list(user).filter(pk__in=keys).order_by("-submitted_at", "-pk")


def chosen_jobs(user: User, query: QueryDict) -> list[ArchivedJob]:
    """Return the selected jobs, or else those that match the filters.

    Raises `BundleTooLarge` or `TooWide`.
    """
    filters = read_filters(query)
    if "id" in query:
        jobs = list(selected_jobs(user, query)[:MOST_JOBS])
    else:
        page = None
        if is_filtered(filters):
            page = ArchivedJobs(filters, archived_jobs_for_list(user)).page(filters, size=MOST_JOBS)
        if page and page.stopped_at:
            raise BundleTooLarge(
                "Not all jobs could be looked through in time: add filters, or select jobs."
            )
        jobs = page.rows if page else []
    if not jobs:
        raise BundleTooLarge("Select jobs, or name what to look for.")
    check_size(jobs)
    return jobs


def tar_response(user: User, jobs: list[ArchivedJob]) -> StreamingHttpResponse:
    """Send the jobs while their tar is made."""
    response = StreamingHttpResponse(tar_of(jobs, user=user), content_type="application/x-tar")
    response["Content-Disposition"] = 'attachment; filename="jobs.tar"'
    return response
