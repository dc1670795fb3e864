"""Words of a diagnosis: what went wrong, whose it is, what to do. Plain Python: the engine uses them too."""

from enum import StrEnum


class Category(StrEnum):
    """Where the fault lies, as the catalogue of known errors says it."""

    SERVICE = "service"
    SITE = "site"
    EXPERIMENT_CODE = "experiment-code"
    CONFIGURATION = "configuration"
    DATA = "data"
    RESOURCE = "resource"
    USER = "user"
    UNKNOWN = "unknown"


class Role(StrEnum):
    """What a known error is in the chain of events; the order is the order of weight."""

    CAUSE = "cause"
    GENERIC = "generic"
    SYMPTOM = "symptom"
    CONSEQUENCE = "consequence"
    NOISE = "noise"


class Advice(StrEnum):
    """What to do with the job."""

    RETRY = "retry"
    DEBUG = "debug"
    HOLD = "hold"
    ESCALATE = "escalate"


class VerdictKind(StrEnum):
    """The answer: whose problem it is."""

    SERVICE = "service"
    CODE = "code"
    RESOURCE = "resource"
    USER = "user"
    UNKNOWN = "unknown"


class Confidence(StrEnum):
    """How sure a verdict is: a deciding fact or cause, something general, or a guess from little."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class ReasonKind(StrEnum):
    """Where a reason comes from."""

    SCHEDULER = "scheduler"
    CATALOGUE = "catalogue"
    OUTAGE = "outage"
    EXIT_CODE = "exit-code"
    LOG = "log"
    PLUGIN = "plugin"


class Overlap(StrEnum):
    """Whether a service was out while the job ran; no data is not "no"."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Stream(StrEnum):
    """Which of a job's two outputs a log is; where both go to one file, that is the output."""

    ERROR = "error"
    OUTPUT = "output"


class HarvestState(StrEnum):
    """How far the reading of a job's log is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    NO_LOG = "no_log"
    REFUSED = "refused"
    FAILED = "failed"


_ENDED = frozenset({HarvestState.DONE, HarvestState.NO_LOG, HarvestState.REFUSED, HarvestState.FAILED})
TRANSITIONS = {
    HarvestState.QUEUED: frozenset({HarvestState.RUNNING}),
    HarvestState.RUNNING: _ENDED | {HarvestState.QUEUED},
    **{state: frozenset({HarvestState.QUEUED}) for state in sorted(_ENDED)},
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
    VerdictKind.SERVICE: Advice.RETRY,
    VerdictKind.CODE: Advice.DEBUG,
    VerdictKind.RESOURCE: Advice.HOLD,
    VerdictKind.USER: Advice.HOLD,
    VerdictKind.UNKNOWN: Advice.ESCALATE,
}
