"""What the archive has of jobs that were submitted with a number in script and environment."""

from typing import NamedTuple

MARK = "OUTAGE_MARK"
#: The rest of a script's first line after its number.
_LINE = "# number "


class ArchivedNumber(NamedTuple):
    """A row of the archive: the id of its job, and the numbers in script and environment."""

    job_id: str
    in_script: int
    in_environment: int


def script_with(number: int) -> str:
    return f"#!/bin/sh\n{_LINE}{number}\nsleep 1\n"


def read_numbers() -> list[ArchivedNumber]:
    """Return the rows of all archived jobs. Needs Django.

    A script must be as it was submitted; ValueError if it is not.
    """
    from apps.archive.domain.store.contents import read_blob
    from apps.archive.models import ArchivedJob
    from apps.clusters.schedulers.environment import variables_in

    rows = []
    for job in ArchivedJob.objects.select_related("script", "environment"):
        script = read_blob(job.script).decode()
        variables = dict(variables_in(read_blob(job.environment)))
        number = int(script.partition(_LINE)[2].partition("\n")[0])
        if script != script_with(number):
            raise ValueError(f"job {job.job_id} has another script: {script!r}")
        rows.append(ArchivedNumber(job.job_id, number, int(variables.get(MARK.encode(), 0))))
    return rows
