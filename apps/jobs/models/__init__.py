"""Every model of the app."""

from apps.jobs.models.jobs import (
    SHORT_HOST,
    AccountMap,
    ClaimAcceptance,
    Collection,
    DirtyHour,
    HourlyEnds,
    HourlyTotals,
    Job,
    JobQuerySet,
    LiveJobs,
    MaskingRule,
    QueueCount,
    QueueReading,
    RejectedRecord,
    StatisticsBlock,
    StatisticsValue,
    SubmittedArray,
)
from apps.jobs.models.phases import JobPhase, PhaseTotals
