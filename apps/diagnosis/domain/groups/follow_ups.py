"""Divide the failed jobs of groups by what follows them; FOLLOW_UPS names the app of retries."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from django.conf import settings
from django.db.models import QuerySet

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.core.domain.plugins import Registry
from apps.diagnosis.enums import FollowUp
from apps.diagnosis.models import Verdict

#: Maximum number of jobs to examine: the newest without a later success. Older ones count as
#: without a planned retry.
MOST_EXAMINED = 5000


class KnowsFollowUps(Protocol):
    """A plugin that returns what follows failed jobs without a later attempt.

    It takes and returns primary keys of verdicts, and leaves out jobs that it knows nothing about.
    The number of its queries is fixed.
    """

    def __call__(
        self, verdict_pks: Sequence[int], *, user: User, at: datetime
    ) -> Mapping[int, FollowUp]: ...


PLUGINS: Registry[KnowsFollowUps] = Registry("opsportal.follow_ups", settings.FOLLOW_UPS)


def count_follow_ups(
    verdicts: QuerySet[Verdict], *, user: User, at: datetime
) -> dict[int, Counter[FollowUp]]:
    """Return how many jobs of each group have which follow-up, by primary key of the group.

    Jobs that succeeded since are left out: their number is in the totals.
    """
    not_succeeded = verdicts.exclude(later_state=JobState.COMPLETED).exclude(group=None)
    newest = not_succeeded.order_by("-ended_at", "-pk")[:MOST_EXAMINED]
    counts: dict[int, Counter[FollowUp]] = defaultdict(Counter)
    group_of_open = {}
    for verdict_pk, group_pk, later_state in newest.values_list("pk", "group", "later_state"):
        if later_state:
            counts[group_pk][FollowUp.FAILED_AGAIN] += 1
        else:
            group_of_open[verdict_pk] = group_pk

    follow_ups: dict[int, FollowUp] = {}
    if group_of_open:
        for plugin in PLUGINS.working().values():
            follow_ups |= plugin(list(group_of_open), user=user, at=at)
    for verdict_pk, group_pk in group_of_open.items():
        counts[group_pk][follow_ups.get(verdict_pk, FollowUp.OPEN)] += 1
    return counts


def describe_follow_ups(counts: Mapping[FollowUp, int]) -> str:
    """Return the numbers of jobs with their follow-ups: `7 being retried, 2 succeeded since`.

    Empty if there is only one kind, of jobs that a person can retry.
    """
    parts = []
    kinds = []
    for follow_up in FollowUp:
        if jobs := counts.get(follow_up, 0):
            parts.append(f"{jobs:,} {follow_up.label}")
            kinds.append(follow_up)
    return "" if kinds == [FollowUp.OPEN] else ", ".join(parts)
