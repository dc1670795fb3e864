"""Store the output files that the logs of completed jobs name."""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from apps.core.errors import InvalidFields
from apps.datasets.domain.output_files import NamedFile
from apps.datasets.models import OutputFile
from apps.jobs.models import Job
from apps.production.domain.outputs.counts import REPORTABLE
from apps.production.models import Stage
from apps.submission.domain.arrays.output_files import store_files

log = logging.getLogger(__name__)

_NUMBERS = ("size_bytes", "events", "run")


class LoggedOutputs:
    """Stores files under the stage of a request that a job proved to be of."""

    def take(self, job: Job, files: Sequence[Mapping[str, Any]], *, at: datetime) -> None:
        """Store the files, unless the job sent some itself.

        All are stored, or none: a fault is logged, since no caller waits for an answer.
        """
        stages = Stage.objects.select_related("request__experiment")
        stage = stages.filter(request__key=job.request_key, name=job.stage).first()
        if not job.request_key or stage is None or stage.request.state not in REPORTABLE:
            return
        if OutputFile.objects.filter(stage=stage, key=job.job_id).exists():
            return
        named = [named_file(file) for file in files]
        faulty = sum(file is None for file in named)
        if faulty:
            log.warning("the log of %s names %d files that cannot be stored", job, faulty)
        try:
            store_files(
                stage=stage,
                key=job.job_id,
                files=[file for file in named if file is not None],
                by=f"log of job {job.job_id}",
                at=at,
                cluster_id=job.cluster_id,
            )
        except InvalidFields as error:
            log.warning("the files in the log of %s are not stored: %s", job, error)


def named_file(file: Mapping[str, Any]) -> NamedFile | None:
    """Parse an output file named in a log; None if its name or the type of a field is invalid."""
    name = file.get("name")
    checksum = file.get("checksum", "")
    parents = file.get("parents", [])
    if not isinstance(name, str) or not isinstance(checksum, str) or not isinstance(parents, list):
        return None
    if not all(isinstance(parent, str) for parent in parents):
        return None
    numbers: dict[str, Any] = {field: file.get(field) for field in _NUMBERS}
    if numbers["size_bytes"] is None:
        return None
    for number in numbers.values():
        if number is not None and type(number) is not int:
            return None
    return NamedFile(name=name, checksum=checksum, parents=parents, **numbers)


LOGGED_OUTPUTS = LoggedOutputs()
