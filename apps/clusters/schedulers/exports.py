"""Readers of files that schedulers write about finished jobs, by format.

They serve clusters whose accounting cannot be queried.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo

from apps.clusters.schedulers.base import Flagged, JobRecord
from apps.clusters.schedulers.htcondor.event_log import records_of_events
from apps.clusters.schedulers.htcondor.records import records_of_history
from apps.clusters.schedulers.slurm.exports import records_in_json, records_of_jobcomp

#: A reader takes the text of a file, the zone of times without one, and an upper bound of all
#: times.
FORMATS: dict[str, Callable[[str, tzinfo, datetime], Iterator[JobRecord | Flagged]]] = {
    "condor-events": records_of_events,
    "condor-history": records_of_history,
    "jobcomp": records_of_jobcomp,
    "sacct-json": records_in_json,
    "slurmrestd": records_in_json,
}
