"""End states of jobs and their groups, and proofs of requests."""

from django.db import models

from apps.clusters.schedulers.base import JobState

STATE_CHOICES = [(state.value, state.value.replace("_", " ").capitalize()) for state in JobState]

#: End of the stage name of debug re-runs: in no statistics, and never part of a stage.
DEBUG_STAGE = ".debug"

#: The job, one of its limits or its host failed. Needs investigation.
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

#: Neither completed nor failed: stopped by a user or by the scheduler.
INTERRUPTED_STATES = frozenset({JobState.CANCELLED, JobState.PREEMPTED, JobState.REQUEUED})

#: All end states, worst first. An array has the worst state of its tasks.
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

#: Filter values for groups of states.
ANY_FAILURE = "any_failure"
INTERRUPTED = "interrupted"
NOT_COMPLETED = "not_completed"

#: Filter value for "empty".
NONE = "-"


class LogPathSource(models.TextChoices):
    """Source of a job's log path."""

    SCHEDULER = "scheduler", "Scheduler"
    ACCOUNTING = "accounting", "Accounting"
    DERIVED = "derived", "Derived from script, options and working directory"


class Proof(models.TextChoices):
    """How it is known that a job belongs to the request that its environment names."""

    SUBMITTED = "submitted", "Submitted by the portal"
    ACCOUNT = "account", "Account or user of the experiment"
    ACCEPTED = "accepted", "Claim accepted"
    CLAIMED = "claimed", "Claimed only"


class ClaimScope(models.TextChoices):
    """Which claims an acceptance covers."""

    JOB = "job", "Job"
    ARRAY = "array", "Array"
    USER = "user", "All jobs of the user"


class MappedName(models.TextChoices):
    """What an account map maps to an experiment."""

    ACCOUNT = "account", "Account"
    USER = "user", "User"


class MaskedPart(models.TextChoices):
    """Part that a masking rule applies to; the values are those of `core.masking.Rule`."""

    NAME = "name", "Name"
    VALUE = "value", "Value"


class Counted(models.TextChoices):
    """What is counted by the hour, and again when something in the hour has changed."""

    JOBS = "jobs", "Jobs"
    CAUSES = "causes", "Failures by cause"
    PHASES = "phases", "Phases"


class PhaseSource(models.TextChoices):
    """Where the phases of a total come from."""

    REPORTED = "reported", "Reported by jobs"
    LOG = "log", "Read from logs"


class RecordSource(models.TextChoices):
    """Where a job record came from."""

    ACCOUNTING = "accounting", "Accounting"
    QUEUE = "queue", "Queue"
    SENT = "sent", "Sent to the portal"
