"""How a job can have ended, and which of these ends count as failure."""

from django.db import models

from apps.clusters.schedulers.base import JobState

STATE_CHOICES = [(state.value, state.value.replace("_", " ")) for state in JobState]

#: The job, its limits or its host failed: somebody should look why.
FAILED_STATES = frozenset(
    {
        JobState.FAILED,
        JobState.TIMEOUT,
        JobState.OUT_OF_MEMORY,
        JobState.NODE_FAIL,
        JobState.BOOT_FAIL,
        JobState.DEADLINE,
    }
)

#: Neither completed nor failed: a person or the scheduler took the job away.
TAKEN_AWAY_STATES = frozenset({JobState.CANCELLED, JobState.PREEMPTED, JobState.REQUEUED})

#: How jobs can have ended, worst first: of several tasks, the one to look at.
WORST_FIRST = (
    JobState.FAILED,
    JobState.OUT_OF_MEMORY,
    JobState.TIMEOUT,
    JobState.DEADLINE,
    JobState.NODE_FAIL,
    JobState.BOOT_FAIL,
    JobState.CANCELLED,
    JobState.PREEMPTED,
    JobState.REQUEUED,
    JobState.COMPLETED,
)

#: Names for these groups where a state is asked for.
ANY_FAILURE, TAKEN_AWAY, NOT_COMPLETED = "any_failure", "taken_away", "not_completed"

#: Asks for an empty value in the address of a list.
NONE = "-"


class LogPathSource(models.TextChoices):
    """How the path of a job's log is known."""

    SCHEDULER = "scheduler", "told by the scheduler"
    ACCOUNTING = "accounting", "told by accounting"
    WORKED_OUT = "worked out", "worked out from script, options and working directory"
