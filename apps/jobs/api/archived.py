"""What the API answers about a job that is not in the database."""

from django.http import Http404
from rest_framework import status
from rest_framework.exceptions import APIException

from apps.accounts.models import User
from apps.jobs.domain.months.archive import archived_job
from apps.jobs.models import ArchivedMonth


class Archived(APIException):
    """The record of a job was archived with those of its month, and is not in the database."""

    status_code = status.HTTP_410_GONE
    default_code = "archived"

    def __init__(self, month: ArchivedMonth) -> None:
        super().__init__(
            f"The job records of {month} are archived. To restore them: manage.py jobs "
            f"restore {month}"
        )


def gone(user: User, pk: int) -> Exception:
    """Return what to raise about a job that is not there: `Archived` to those who could see it,
    else `Http404`.
    """
    archived = archived_job(pk, user=user)
    return Archived(archived.month) if archived else Http404()
