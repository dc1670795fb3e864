"""Terms of a diagnosis: what failed, who acts on it, what to do.

`docs/glossary.md` lists the values and labels.
"""

from django.db import models


class Category(models.TextChoices):
    """Where the fault lies, according to the catalogue of known errors."""

    SERVICE = "service", "Service"
    SITE = "site", "Site"
    EXPERIMENT_CODE = "experiment-code", "Experiment code"
    CONFIGURATION = "configuration", "Configuration"
    DATA = "data", "Data"
    RESOURCE = "resource", "Resource"
    USER = "user", "User"
    UNKNOWN = "unknown", "Unknown"


class Role(models.TextChoices):
    """Place of a known error in the causal chain, in order of weight."""

    CAUSE = "cause", "Cause"
    GENERIC = "generic", "Generic"
    SYMPTOM = "symptom", "Symptom"
    CONSEQUENCE = "consequence", "Consequence"
    NOISE = "noise", "Noise"


class JobAdvice(models.TextChoices):
    """What to do with the job."""

    RETRY = "retry", "Retry"
    DEBUG = "debug", "Debug"
    HOLD = "hold", "Hold"
    ESCALATE = "escalate", "Escalate"
    NONE = "none", "Nothing to do"


class VerdictKind(models.TextChoices):
    """Why a job failed, in terms of who has to act."""

    SERVICE = "service", "Service problem"
    CODE = "code", "Code problem"
    RESOURCE = "resource", "Resource limit exceeded"
    USER = "user", "Cancelled by user"
    UNKNOWN = "unknown", "Unknown cause"


class Confidence(models.TextChoices):
    """How certain a verdict is.

    It is high if a fact or a cause decided, medium for a general error, low for weak evidence.
    """

    HIGH = "high", "High"
    MEDIUM = "medium", "Medium"
    LOW = "low", "Low"


class ReasonKind(models.TextChoices):
    """Source of a reason."""

    SCHEDULER = "scheduler", "Scheduler"
    CATALOGUE = "catalogue", "Catalogue"
    OUTAGE = "outage", "Outage"
    EXIT_CODE = "exit-code", "Exit code"
    LOG = "log", "Log"
    PLUGIN = "plugin", "Plugin"
    NOVEL = "novel", "Novel line"


class CodeKind(models.TextChoices):
    """The kind of a number that a job ended with."""

    EXIT = "exit", "Exit code"
    SIGNAL = "signal", "Signal"
    HOLD = "hold", "Hold code"


class CodeScope(models.TextChoices):
    """The scope in which an exit code has its meaning."""

    EXPERIMENT = "experiment", "Experiment"
    SCHEDULER = "scheduler", "Scheduler"
    CONVENTION = "convention", "Convention"
    PROGRAM = "program", "Program"


class Overlap(models.TextChoices):
    """Whether a service had an outage while the job ran; missing data is not "no"."""

    YES = "yes", "Yes"
    NO = "no", "No"
    UNKNOWN = "unknown", "Unknown"


class Stream(models.TextChoices):
    """Output stream of a job; if both go to one file, that file is stdout."""

    STDERR = "stderr", "stderr"
    STDOUT = "stdout", "stdout"


class HarvestState(models.TextChoices):
    """Progress of the analysis of a job's logs."""

    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    LOG_NOT_FOUND = "log_not_found", "Log not found"
    PATH_NOT_ALLOWED = "path_not_allowed", "Path not allowed"
    FAILED = "failed", "Failed"


class Refusal(models.TextChoices):
    """Why a log must not be read; `wording.REFUSAL_FIXES` says what to do about each."""

    ROOTS = "roots", "outside LOG_ROOTS"
    OWNER = "owner", "owned by another user"
    RIGHTS = "rights", "not readable for the job's user"
    SERVER = "server", "web server not in LOG_SERVERS"
    FILE = "file", "not an ordinary file, or in a directory that others may write to"


class GroupKind(models.TextChoices):
    """What the jobs of a failure group share: an error, or a host or release that fails most."""

    ERROR = "error", "Error"
    HOST = "host", "Host"
    RELEASE = "release", "Release"


class GroupStatus(models.TextChoices):
    """Progress of the triage of a failure group."""

    NEW = "new", "Not triaged"
    KNOWN = "known", "Known"
    ASSIGNED = "assigned", "Assigned"
    RETRIED = "retried", "Retried"
    RESOLVED = "resolved", "Resolved"
    REGRESSED = "regressed", "Regressed"
    MUTED = "muted", "Muted"


_G = GroupStatus
_OPEN = frozenset({_G.KNOWN, _G.ASSIGNED, _G.RETRIED, _G.RESOLVED, _G.MUTED})
GROUP_MOVES = {
    _G.NEW: _OPEN,
    _G.REGRESSED: _OPEN,
    _G.KNOWN: _OPEN - {_G.KNOWN},
    _G.ASSIGNED: _OPEN,
    _G.RETRIED: (_OPEN - {_G.RETRIED}) | {_G.REGRESSED},
    _G.RESOLVED: frozenset({_G.KNOWN, _G.ASSIGNED, _G.REGRESSED}),
    _G.MUTED: frozenset({_G.NEW, _G.REGRESSED, _G.KNOWN, _G.ASSIGNED, _G.RETRIED, _G.RESOLVED}),
}
#: A failure of a job that started after a group got one of these statuses reopens the group.
CLOSED = frozenset({_G.RETRIED, _G.RESOLVED})


class GroupSection(models.TextChoices):
    """Section of the triage list in which a group is shown."""

    ACTION = "action", "Needs action"
    PROGRESS = "progress", "In progress"
    DONE = "done", "Done"


class FollowUp(models.TextChoices):
    """What follows the failure of a job. Each failed job has exactly one."""

    IN_BATCH = "in-batch", "in batches of retries"
    RETRYING = "retrying", "being retried"
    BY_RULE = "by-rule", "will be retried by recovery rules"
    OPEN = "open", "with no retry planned"
    BY_OWNER = "by-owner", "for only their owners to retry"
    IMPOSSIBLE = "impossible", "cannot be retried"
    FAILED_AGAIN = "failed-again", "failed again since"
    SUCCEEDED = "succeeded", "succeeded since"


#: Failed jobs that a person has nothing to do about.
TAKEN_CARE_OF = frozenset(
    {
        FollowUp.IN_BATCH,
        FollowUp.RETRYING,
        FollowUp.BY_RULE,
        FollowUp.FAILED_AGAIN,
        FollowUp.SUCCEEDED,
    }
)

SECTION_OF = {
    _G.NEW: GroupSection.ACTION,
    _G.REGRESSED: GroupSection.ACTION,
    _G.KNOWN: GroupSection.PROGRESS,
    _G.ASSIGNED: GroupSection.PROGRESS,
    _G.RETRIED: GroupSection.DONE,
    _G.RESOLVED: GroupSection.DONE,
    _G.MUTED: GroupSection.DONE,
}

_FINISHED = frozenset(
    {
        HarvestState.DONE,
        HarvestState.LOG_NOT_FOUND,
        HarvestState.PATH_NOT_ALLOWED,
        HarvestState.FAILED,
    }
)
TRANSITIONS = {
    HarvestState.QUEUED: frozenset({HarvestState.RUNNING}),
    HarvestState.RUNNING: _FINISHED | {HarvestState.QUEUED},
    **{state: frozenset({HarvestState.QUEUED}) for state in sorted(_FINISHED)},
}

VERDICT_OF = {
    Category.SERVICE: VerdictKind.SERVICE,
    Category.SITE: VerdictKind.SERVICE,
    Category.EXPERIMENT_CODE: VerdictKind.CODE,
    Category.CONFIGURATION: VerdictKind.CODE,
    Category.DATA: VerdictKind.CODE,
    Category.RESOURCE: VerdictKind.RESOURCE,
    Category.USER: VerdictKind.USER,
    Category.UNKNOWN: VerdictKind.UNKNOWN,
}
ADVICE_OF = {
    VerdictKind.SERVICE: JobAdvice.RETRY,
    VerdictKind.CODE: JobAdvice.DEBUG,
    VerdictKind.RESOURCE: JobAdvice.HOLD,
    VerdictKind.USER: JobAdvice.HOLD,
    VerdictKind.UNKNOWN: JobAdvice.ESCALATE,
}


#: Category of a known error that is proposed from corrected verdicts. Corrections to a user's
#: cancellation or to an unknown cause propose none.
CATEGORY_OF_CORRECTION = {
    VerdictKind.SERVICE: Category.SERVICE,
    VerdictKind.CODE: Category.EXPERIMENT_CODE,
    VerdictKind.RESOURCE: Category.RESOURCE,
}


class ChangeState(models.TextChoices):
    """Progress of a change of the catalogue."""

    PROPOSED = "proposed", "Proposed"
    APPLIED = "applied", "Applied"
    REJECTED = "rejected", "Rejected"


CHANGE_MOVES = {ChangeState.PROPOSED: frozenset({ChangeState.APPLIED, ChangeState.REJECTED})}


class ReclassificationState(models.TextChoices):
    """Progress of a re-classification of history."""

    PREVIEWING = "previewing", "Previewing"
    PREVIEWED = "previewed", "Previewed"
    APPLYING = "applying", "Applying"
    DONE = "done", "Done"
    CANCELLED = "cancelled", "Cancelled"


_R = ReclassificationState
RECLASSIFICATION_MOVES = {
    _R.PREVIEWING: frozenset({_R.PREVIEWED, _R.CANCELLED}),
    _R.PREVIEWED: frozenset({_R.APPLYING, _R.CANCELLED}),
    _R.APPLYING: frozenset({_R.DONE, _R.CANCELLED}),
}
RECLASSIFYING = (_R.PREVIEWING, _R.APPLYING)


class BaselineScope(models.TextChoices):
    """The jobs to which failures during an incident are compared."""

    SITE = "site", "Same stage and site"
    STAGE = "stage", "Same stage, any site"
    EXPERIMENT = "experiment", "Same experiment"
