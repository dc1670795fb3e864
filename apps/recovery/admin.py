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
    changed_on=("Recovery", "recovery:rules"),
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
