"""*Fix first* on the home page: open failure groups by wasted core-hours, each with one step."""

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from apps.accounts.models import User
from apps.core import charts
from apps.diagnosis.domain.causes.totals import totals_between
from apps.diagnosis.domain.groups.group_list import (
    GroupRow,
    add_details,
    add_waits,
    group_rows,
    sums_by_group,
)
from apps.diagnosis.enums import GroupKind, GroupSection, VerdictKind
from apps.diagnosis.models import CauseTotals, DailyCauseTotals
from apps.hosts.web.links import groups_of_excluded_hosts
from apps.jobs.domain.records.conversion import last_hours
from apps.portal.pages.limit_proposals import LimitProposal, propose_limits
from apps.submission.domain.retries.offers import retry_offer

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
    """The groups to fix first, of all open `groups`, and the query of their jobs."""

    fixes: list[Fix]
    groups: int
    jobs_query: str


def fix_first(*, user: User, at: datetime) -> FixFirst:
    """Return the open groups of the last 24 hours that wasted most core-hours."""
    start, end = last_hours(at, HOURS)
    hours = CauseTotals.objects.visible_to(user)
    days = DailyCauseTotals.objects.visible_to(user)
    totals = totals_between(hours, days, start=start, end=end)
    open_rows = []
    for row in group_rows(sums_by_group(totals)):
        if row.open and row.section is not GroupSection.DONE:
            open_rows.append(row)
    open_rows.sort(key=lambda row: (-row.core_seconds, -row.open, row.pk))

    shown = open_rows[:MOST_GROUPS]
    add_details(shown, totals, hours, end=end)
    add_waits(shown, at)
    proposals = propose_limits([row.group for row in shown], user)
    excluded = groups_of_excluded_hosts(at)
    fixes = []
    for row in shown:
        row.spark = charts.spark(
            row.hourly, sentence=f"24 hours, at most {max(row.hourly)} jobs an hour"
        )
        if row.pk in excluded:
            fixes.append(_retry(row, "excluded from new jobs; retry elsewhere", user, at))
        else:
            fixes.append(_fix(row, proposals.get(row.pk), user, at))
    bounds = f"?start={start:%Y-%m-%dT%H:%MZ}&end={end:%Y-%m-%dT%H:%MZ}"
    return FixFirst(fixes, len(open_rows), bounds)


def _fix(row: GroupRow, proposal: LimitProposal | None, user: User, at: datetime) -> Fix:
    group = row.group
    page = group.get_absolute_url()
    if row.kind == GroupKind.HOST:
        return Fix(row, row.step, f"Drain {group.host}…", f"{page}#drain")
    if proposal and row.verdict == VerdictKind.RESOURCE:
        return Fix(row, proposal.advice, proposal.label, proposal.url)
    if row.verdict == VerdictKind.SERVICE and row.kind == GroupKind.ERROR and not row.wait:
        return _retry(row, row.step, user, at)
    return Fix(row, row.step, "Open", page)


def _retry(row: GroupRow, advice: str, user: User, at: datetime) -> Fix:
    """Offer the retry of as many jobs as its dry run has: some of the open jobs succeeded since, or
    are retried.
    """
    offer = retry_offer(source=row.group, user=user, at=at)
    if offer.short_label:
        dry_run = reverse("submission:retry-jobs", args=["group", row.pk])
        return Fix(row, advice, offer.short_label, dry_run)
    return Fix(row, offer.why_none or advice, "Open", row.group.get_absolute_url())
