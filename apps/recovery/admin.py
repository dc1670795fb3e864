"""Recovery rules and decisions in the admin, read-only: rules are written on their pages."""

from apps.core.admin import register_read_only
from apps.recovery.models import (
    DailyEffect,
    Decision,
    RecoveryRule,
    RecoveryRuleVersion,
    WeeklyRecovery,
)

register_read_only(
    RecoveryRule,
    "name position experiment mode version stopped_itself owner",
    filters=["mode"],
    about="What is done about failed jobs. Rules are added and changed on the page:",
    document="recovery",
    changed_on=("Recovery", "recovery:rules"),
    instead_of_deleting=(
        "Rules are kept with their decisions. To retire one, set it to “Off” on its page: it then "
        "does nothing."
    ),
)
register_read_only(RecoveryRuleVersion, "rule number at by reason")
register_read_only(
    Decision,
    "job rule version arm outcome attempt why decided_at outcome_at",
    search="job__job_id",
    filters=["arm", "outcome"],
)
register_read_only(
    DailyEffect,
    "day rule version experiment arm outcome jobs",
    filters=["arm"],
    about="Decisions of recovery rules by day, as last counted.",
)
register_read_only(
    WeeklyRecovery,
    "week experiment category recovery jobs",
    about="Jobs that failed at their first attempt, by week and how they recovered.",
)
