"""Fetch the current state of sources that provide it, to close what they no longer report."""

from django.utils import timezone

from apps.core.domain.background import enqueue
from apps.statusboard.domain.monitoring.payloads import receive_payload
from apps.statusboard.domain.monitoring.source_fetch import PullFailed, fetch
from apps.statusboard.models import MonitoringSource


def pull_all() -> None:
    """Queue a fetch of each source that has a URL."""
    for pk in MonitoringSource.objects.exclude(pull_url="").values_list("pk", flat=True):
        enqueue("statusboard.pull_source", source_id=pk)


def pull_source(*, source_id: int) -> None:
    """Fetch a source and store the response as its payload, or the reason why that failed.

    The payload gets the time before the request: what the source reports during the request is
    newer.
    """
    source = MonitoringSource.objects.filter(pk=source_id).exclude(pull_url="").first()
    if source is None:
        return
    at = timezone.now()
    sources = MonitoringSource.objects.filter(pk=source_id)
    try:
        body = fetch(feed=source.feed, url=source.pull_url)
    except PullFailed as error:
        sources.update(pull_error=str(error)[:300])
        return
    receive_payload(source=source, body=body, at=at)
    sources.update(pulled_at=at, pull_error="")
