"""The API's response for a job that is archived and no longer in the database."""

from django.http import Http404
from rest_framework import status
from rest_framework.exceptions import APIException

from apps.accounts.models import User
from apps.jobs.domain.months.archived_records import archived_job
from apps.jobs.models import Job


class Archived(APIException):
    """The job's record was archived with its month and is no longer in the database."""

    status_code = status.HTTP_410_GONE
    default_code = "archived"

    def __init__(self, job: Job) -> None:
        super().__init__(
            f"The job records of {job.archived_in:%Y-%m} are archived. This one is at "
            f"/api/v1/job-history/{job.pk}/."
        )


def gone(user: User, pk: int) -> Exception:
    """Return the exception for a job that is not in the database.

    That is `Archived` for users who could see the job, `Http404` for others.
    """
    archived = archived_job(pk, user=user)
    return Archived(archived) if archived else Http404()
