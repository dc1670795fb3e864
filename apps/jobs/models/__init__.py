"""All models of the app."""

from apps.jobs.models.jobs import (
    SHORT_HOST,
    AccountMap,
    ClaimAcceptance,
    Collection,
    DirtyHour,
    FlaggedRecord,
    HourlyEnds,
    HourlyTotals,
    Job,
    JobQuerySet,
    LiveJobs,
    MaskingRule,
    QueueCount,
    QueueReading,
    StatisticsBlock,
    StatisticsValue,
    SubmittedArray,
)
from apps.jobs.models.live import LiveArray
from apps.jobs.models.months import ArchivedMonth
from apps.jobs.models.phases import JobPhase, LogPhase, PhaseTotals
