"""End states of jobs and their groups, and proofs of requests."""

from django.db import models

from apps.clusters.schedulers.base import JobState

STATE_CHOICES = [(state.value, state.text.capitalize()) for state in JobState]

#: Suffix of the stage name of debug re-runs, which are in no statistics and never part of a stage.
DEBUG_STAGE = ".debug"
#: Suffix of the stage name of tests before production.
TEST_STAGE = ".test"


def stage_of_request(stage: str) -> str:
    """Return the name of a stage in its request, for the stage name that a job carries."""
    return stage.removesuffix(DEBUG_STAGE).removesuffix(TEST_STAGE)


#: The job, its host or a limit failed. Needs investigation.
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

#: Stopped by a user or by the scheduler: neither completed nor failed.
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

#: Filter value for an empty field.
NONE = "-"


class LogPathSource(models.TextChoices):
    """Source of a job's log path."""

    SCHEDULER = "scheduler", "Scheduler"
    ACCOUNTING = "accounting", "Accounting"
    DERIVED = "derived", "Derived from script, options and working directory"


class Proof(models.TextChoices):
    """The proof that a job belongs to the request named in its environment."""

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
    """What an account map matches: an account or a user."""

    ACCOUNT = "account", "Account"
    USER = "user", "User"


#: The names of the portal's probe jobs begin like this. They say nothing of other jobs.
PROBE_JOB_PREFIX = "opsportal-probe-"


class ProbeJobs(models.TextChoices):
    """Whether a list of jobs has the portal's probe jobs."""

    HIDE = "hide", "Hidden"
    SHOW = "show", "Shown"
    ONLY = "only", "Only"


class MaskedPart(models.TextChoices):
    """The part that a masking rule applies to; with the values of `MaskPattern.applies_to`."""

    NAME = "name", "Name"
    VALUE = "value", "Value"


class Counted(models.TextChoices):
    """Counts kept by hour, recounted when something in the hour changes."""

    JOBS = "jobs", "Jobs"
    CAUSES = "causes", "Failures by cause"
    PHASES = "phases", "Phases"
    LINES = "lines", "Lines of logs"


class PhaseSource(models.TextChoices):
    """The source of the phases in a total."""

    REPORTED = "reported", "Reported by jobs"
    LOG = "log", "Read from logs"


class RecordSource(models.TextChoices):
    """The source of a job record."""

    ACCOUNTING = "accounting", "Accounting"
    QUEUE = "queue", "Queue"
    SENT = "sent", "Sent to the portal"
