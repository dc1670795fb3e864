"""Downloads of many jobs as one tar, for pages and API."""

from collections.abc import Iterator
from contextlib import ExitStack

from django.db.models import QuerySet
from django.http import QueryDict, StreamingHttpResponse

from apps.accounts.models import User
from apps.archive.domain.bundle import MOST_JOBS, TooLarge, check_size, tar_of
from apps.archive.domain.store.contents import jobs_for_list
from apps.archive.filters import ArchivedJobs
from apps.archive.models import ArchivedJob
from apps.core.domain.locks import exclusive_lock
from apps.core.errors import LimitReached

#: A tar takes a thread of the server until the client has read it: a user gets one at a time.
_USER_LOCK = 4_716_051
_WAIT_SECONDS = 10


def asked(query: QueryDict) -> QueryDict:
    """Return the filters alone: without a page's place, and without jobs that were selected."""
    filters = query.copy()
    for name in ("after", "id"):
        filters.pop(name, None)
    return filters


def selected_jobs(user: User, query: QueryDict) -> QuerySet[ArchivedJob]:
    """Return the jobs of `?id=…&id=…` that the person may see, newest first."""
    keys = {int(key) for key in query.getlist("id") if key.isdecimal() and len(key) < 19}
    return jobs_for_list(user).filter(pk__in=keys).order_by("-submitted_at", "-pk")


def chosen_jobs(user: User, query: QueryDict) -> list[ArchivedJob]:
    """Return the jobs that were selected; without any, those that the filters find. Raises `TooLarge`, `TooWide`."""
    filters = asked(query)
    if "id" in query:
        found = list(selected_jobs(user, query)[:MOST_JOBS])
    else:
        page = ArchivedJobs(filters, jobs_for_list(user)).page(filters, size=MOST_JOBS) if filters else None
        if page and page.stopped_at:
            raise TooLarge("Not all jobs could be looked through in time: add filters, or select jobs.")
        found = page.rows if page else []
    if not found:
        raise TooLarge("Select jobs, or name what to look for.")
    check_size(found)
    return found


class _Tar:
    """A tar that `StreamingHttpResponse` iterates over, and closes also if the client leaves early."""

    def __init__(self, parts: Iterator[bytes], held: ExitStack) -> None:
        self._parts, self._held = parts, held

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def close(self) -> None:
        self._held.close()


def tar_response(user: User, jobs: list[ArchivedJob]) -> StreamingHttpResponse:
    """Send the jobs while their tar is made. Raises `LimitReached` while another tar is sent to the user."""
    held = ExitStack()
    if not held.enter_context(exclusive_lock(_USER_LOCK, user.pk)):
        raise LimitReached(
            "Another tar is being sent to you. Try again when it is complete.", wait_seconds=_WAIT_SECONDS
        )
    response = StreamingHttpResponse(_Tar(tar_of(jobs, user=user), held), content_type="application/x-tar")
    response["Content-Disposition"] = 'attachment; filename="jobs.tar"'
    return response
