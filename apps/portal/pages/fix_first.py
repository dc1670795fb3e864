"""*Fix first* on the home page: open failure groups by wasted core-hours, each with one step."""

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from apps.accounts.models import User
from apps.accounts.permissions import operates_any
from apps.core import charts
from apps.diagnosis.domain.causes.totals import totals_between
from apps.diagnosis.domain.groups.follow_ups import count_follow_ups
from apps.diagnosis.domain.groups.group_list import (
    GroupRow,
    add_details,
    add_waits,
    group_rows,
    sums_by_group,
)
from apps.diagnosis.enums import GroupKind, GroupSection, VerdictKind
from apps.diagnosis.models import CauseTotals, DailyCauseTotals, Verdict
from apps.hosts.web.links import steps_of_host_groups
from apps.jobs.domain.records.conversion import last_hours
from apps.portal.pages.limit_proposals import LimitProposal, propose_limits
from apps.recovery.domain.decisions.explanations import count_planned_by_group
from apps.submission.domain.retries.offers import retry_offer
from apps.submission.domain.retries.only_owners import step_of_owners

#: How many groups the home page shows.
MOST_GROUPS = 5
HOURS = 24


@dataclass(frozen=True)
class Fix:
    """A failure group with its next step: advice, and the label and target of the button."""

    row: GroupRow
    advice: str
    label: str
    url: str


@dataclass(frozen=True)
class FixFirst:
    """The groups to fix first, and the query of their jobs.

    `groups` counts all open ones, as the list of failures does: those that need action, and those
    in progress. In `taken_care_of` of them, a person has nothing to do. Their jobs ended since
    `start`, as on the list of failures.
    """

    fixes: list[Fix]
    groups: int
    taken_care_of: int
    start: datetime
    jobs_query: str


def fix_first(*, user: User, at: datetime) -> FixFirst:
    """Return the open groups of the last 24 hours that wasted most core-hours."""
    start, end = last_hours(at, HOURS)
    hours = CauseTotals.objects.visible_to(user)
    days = DailyCauseTotals.objects.visible_to(user)
    totals = totals_between(hours, days, start=start, end=end)
    verdicts = Verdict.objects.visible_to(user).between(start, end)
    follow_ups = count_follow_ups(verdicts, user=user, at=at)
    open_groups = []
    for row in group_rows(sums_by_group(totals), follow_ups):
        if row.section is not GroupSection.DONE:
            open_groups.append(row)
    rows_to_fix = [row for row in open_groups if row.for_a_person]
    rows_to_fix.sort(key=lambda row: (-row.core_seconds, -row.open, row.pk))

    shown = rows_to_fix[:MOST_GROUPS]
    add_details(shown, totals, hours, end=end)
    add_waits(shown, at)
    groups = [row.group for row in shown]
    proposals = propose_limits(groups, user)
    host_steps = steps_of_host_groups(at)
    planned = count_planned_by_group(groups, user)
    fixes: list[Fix] = []
    for row in shown:
        retries = _Retries(row, user, at, planned.get(row.pk, 0))
        if row.pk in host_steps:
            fix = retries.fix(host_steps[row.pk])
        else:
            fix = _fix(retries, proposals.get(row.pk))
        row.spark = charts.spark(
            row.hourly, sentence=f"24 hours, at most {max(row.hourly)} jobs an hour"
        )
        fixes.append(fix)
    bounds = f"?start={start:%Y-%m-%dT%H:%MZ}&end={end:%Y-%m-%dT%H:%MZ}"
    taken_care_of = len(open_groups) - len(rows_to_fix)
    return FixFirst(fixes, len(open_groups), taken_care_of, start, bounds)


@dataclass(frozen=True)
class _Retries:
    """A group whose jobs a user may retry, and how many of them recovery rules will retry."""

    row: GroupRow
    user: User
    at: datetime
    planned: int

    def fix(self, advice: str) -> Fix:
        """Offer the retry of as many jobs as its dry run has."""
        page = self.row.group.get_absolute_url()
        offer = retry_offer(source=self.row.group, user=self.user, at=self.at, planned=self.planned)
        if offer.by_rules:
            advice = f"{advice}; {offer.by_rules:,} more will be retried by recovery rules"
        if offer.is_left_to_owners:
            return Fix(self.row, step_of_owners(self.user), "Open", page)
        if offer.short_label:
            dry_run = reverse("submission:retry-jobs", args=["group", self.row.pk])
            return Fix(self.row, advice, offer.short_label, dry_run)
        if offer.may_retry:
            return Fix(self.row, offer.why_none or advice, "Open", page)
        parts = [offer.why_none.removesuffix(".")]
        if self.planned:
            parts.insert(0, f"{self.planned:,} will be retried by recovery rules")
        return Fix(self.row, "; ".join(filter(None, parts)) or advice, "Open", page)


def _fix(retries: _Retries, proposal: LimitProposal | None) -> Fix:
    row = retries.row
    page = row.group.get_absolute_url()
    if row.kind == GroupKind.HOST and operates_any(retries.user):
        return Fix(row, row.step, f"Drain {row.group.host}…", f"{page}#drain")
    if proposal and row.verdict == VerdictKind.RESOURCE:
        return Fix(row, proposal.advice, proposal.label, proposal.url)
    if row.verdict == VerdictKind.SERVICE and row.kind == GroupKind.ERROR and not row.wait:
        return retries.fix(row.step)
    return Fix(row, row.step, "Open", page)
