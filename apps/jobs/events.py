"""What happens to job records."""

from apps.core.domain.event_kinds import EventKind, declare

declare(
    EventKind("account.mapped", "mapped the account {new} to the experiment", "has a new account: its jobs count here"),
    EventKind("jobs.collected", "collected jobs from accounting", "had jobs collected from accounting"),
)
