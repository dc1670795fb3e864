"""Events of job records, claims and masking rules."""

from apps.core.domain.event_kinds import TEAM, EventKind, declare, declare_administrative, to
from apps.core.enums import Group

declare(
    EventKind(
        "account.mapped",
        "mapped the account {new} to the experiment",
        "has a new account: its jobs count here",
    ),
    EventKind(
        "jobs.claimed",
        "gave the experiment {jobs} earlier jobs",
        "has earlier jobs by account or user",
    ),
    EventKind(
        "claims.accepted",
        "accepted {jobs} jobs that claim to belong to the request",
        "has more jobs",
    ),
    EventKind(
        "claims.withdrawn", "withdrew the acceptance of {jobs} claimed jobs", "has fewer jobs"
    ),
    EventKind(
        "jobs.collected", "collected jobs from accounting", "had jobs collected from accounting"
    ),
    EventKind(
        "request.jobs_stuck",
        "found {jobs} jobs of {stage} that do not get on with {phase}",
        "has jobs that are stuck",
        to(Group.TROUBLE, *TEAM),
    ),
    EventKind(
        "job_month.dropped",
        "archived and dropped the records of {jobs} jobs of",
        "was archived and dropped",
    ),
    EventKind("job_month.restored", "restored the records of {jobs} jobs of", "was restored"),
    EventKind("masking_rule.saved", "saved the masking rule", "was saved"),
    EventKind("masking_rule.deleted", "deleted the masking rule", "was deleted"),
)

declare_administrative("account.mapped", "masking_rule")
