"""Celery tasks of recovery. Each may be lost, killed or run twice."""

from celery import shared_task
from django.utils import timezone

from apps.recovery.domain.decisions.carry_out import act_on_due
from apps.recovery.domain.decisions.decide import decide_due, enrol_failures
from apps.recovery.domain.decisions.outcomes import follow_decisions
from apps.recovery.domain.decisions.questions import ask_again
from apps.recovery.domain.recoveries import follow_recoveries, recent_mondays, recount_weeks
from apps.recovery.domain.rules.useless import stop_useless_rules

#: Batches of decisions per run; the next run continues.
MOST_A_RUN = 20


@shared_task(name="recovery.count_weeks")
def count_weeks() -> None:
    """Count how many failed jobs of the last weeks ended well without a person."""
    recount_weeks(recent_mondays(timezone.now()))


@shared_task(name="recovery.run")
def run() -> None:
    """Decide about new failures, follow earlier decisions, stop rules, and plan retries."""
    enrol_failures(at=timezone.now())
    for _ in range(MOST_A_RUN):
        if not decide_due(at=timezone.now()):
            break
    ask_again(at=timezone.now())
    follow_decisions(at=timezone.now())
    follow_recoveries(at=timezone.now())
    stop_useless_rules(at=timezone.now())
    act_on_due(at=timezone.now())
