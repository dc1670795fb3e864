"""Try payloads of monitoring sources: what the portal would understand, without storing it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.cache import cache
from django.utils import timezone

from apps.core.domain.background import enqueue
from apps.core.domain.plugins import UnknownPlugin
from apps.core.errors import DomainError
from apps.core.short_cache import kept
from apps.statusboard.domain.monitoring.payloads import map_report
from apps.statusboard.domain.monitoring.source_fetch import PullFailed, fetch
from apps.statusboard.enums import State
from apps.statusboard.feeds.base import Alert, UnreadablePayload, Window
from apps.statusboard.feeds.registry import FEEDS
from apps.statusboard.models import LabelRule, MonitoringSource, Service

#: Alerts and windows that a trial shows.
MOST_REPORTS = 100
#: How long a fetched answer is kept for the page, and how long the page waits for a worker.
KEEP_SECONDS = 600
WAIT_SECONDS = 60


@dataclass(frozen=True)
class ReportTrial:
    """One alert or maintenance window, and the service that it would concern.

    Without a service it is ignored by a rule, if it `is_mapped`; else it would be listed as
    unmapped.
    """

    report: Alert | Window
    is_window: bool
    is_mapped: bool
    service: Service | None
    state: State


@dataclass(frozen=True)
class PayloadTrial:
    """What a payload contains, or why it cannot be read.

    `left_out` counts the reports above `MOST_REPORTS`. If the payload `is_complete`, everything
    else that the source reported before would be over.
    """

    reports: tuple[ReportTrial, ...] = ()
    left_out: int = 0
    notes: tuple[str, ...] = ()
    is_complete: bool = False
    error: str = ""


def try_payload(*, source: MonitoringSource, body: bytes) -> PayloadTrial:
    """Read a payload as one of this source, with its mapping and rules; store nothing."""
    try:
        message = FEEDS.get(source.feed)(source.mapping).parse(body)
    except (UnreadablePayload, UnknownPlugin) as error:
        return PayloadTrial(error=str(error) or type(error).__name__)
    except Exception as error:
        # A format of a third party may raise anything.
        return PayloadTrial(error=f"{type(error).__name__}: {error}"[:1000])
    reports: tuple[Alert | Window, ...] = (*message.alerts, *message.windows)
    return PayloadTrial(
        reports=tuple(_map_reports(source, reports[:MOST_REPORTS])),
        left_out=max(0, len(reports) - MOST_REPORTS),
        notes=message.notes,
        is_complete=message.is_complete,
    )


def _map_reports(
    source: MonitoringSource, reports: tuple[Alert | Window, ...]
) -> list[ReportTrial]:
    rules = list(LabelRule.objects.filter(source=source).select_related("service"))
    slugs = {report.labels.get("service", "") for report in reports}
    by_slug = {service.slug: service for service in Service.objects.filter(slug__in=slugs)}
    trials = []
    for report in reports:
        is_mapped, service, state = map_report(report, rules, by_slug)
        is_window = isinstance(report, Window)
        trials.append(ReportTrial(report, is_window, is_mapped, service, state))
    return trials


@dataclass(frozen=True)
class FetchTrial:
    """A fetch of a source for its page: it waits for a worker, failed, or has a result."""

    asked_at: datetime
    error: str = ""
    trial: PayloadTrial | None = None

    @property
    def is_waiting(self) -> bool:
        return not self.error and self.trial is None


def ask_for_fetch(*, source: MonitoringSource, at: datetime) -> None:
    """Let a worker fetch a source; `fetch_trial` returns what it got.

    Raises `DomainError` if Redis, which brings it to a worker, is down.
    """
    try:
        _keep(source.pk, {"asked_at": at})
    except Exception as error:
        raise DomainError("It cannot be fetched while Redis is down. Try again later.") from error
    enqueue("statusboard.try_fetch", source_id=source.pk)


def try_fetch(*, source_id: int) -> None:
    """Fetch a source, and keep the answer for its page; the status board does not change."""
    source = MonitoringSource.objects.filter(pk=source_id).exclude(pull_url="").first()
    if source is None:
        return
    asked_at = (kept(_key(source_id)) or {}).get("asked_at") or timezone.now()
    try:
        body = fetch(feed=source.feed, url=source.pull_url)
    except PullFailed as error:
        _keep(source_id, {"asked_at": asked_at, "error": str(error)})
    else:
        _keep(source_id, {"asked_at": asked_at, "body": body})


def fetch_trial(*, source: MonitoringSource, at: datetime) -> FetchTrial | None:
    """Return the newest fetch for the page of a source; None if there was none lately.

    None, too, if Redis is down: the rest of the page does not need it.
    """
    outcome = kept(_key(source.pk))
    if outcome is None:
        return None
    asked_at = outcome["asked_at"]
    if "body" in outcome:
        trial = try_payload(source=source, body=outcome["body"])
        return FetchTrial(asked_at, trial=trial)
    error = outcome.get("error", "")
    if not error and (at - asked_at).total_seconds() > WAIT_SECONDS:
        error = f"No worker fetched it within {WAIT_SECONDS} s. “Is all well?” shows the workers."
    return FetchTrial(asked_at, error)


def _keep(source_id: int, outcome: Mapping[str, Any]) -> None:
    cache.set(_key(source_id), dict(outcome), KEEP_SECONDS)


def _key(source_id: int) -> str:
    return f"monitoring-trial:{source_id}"
