"""Flagged job records: kept unchanged with the reason, and listed for the OPG."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, QuerySet

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import Flagged
from apps.jobs.domain.collection.masking_rules import current_masker
from apps.jobs.domain.records.conversion import clean_text, keyed_digest
from apps.jobs.enums import RecordSource
from apps.jobs.models import FlaggedRecord

#: Maximum characters kept of a record.
MOST_RAW = 64_000
#: Maximum reasons on a page, those with most records first.
MOST_REASONS = 50
KEPT = timedelta(days=90)


def keep_flagged(
    *, cluster: Cluster, flagged: Iterable[Flagged], source: RecordSource, at: datetime
) -> None:
    """Keep flagged records with their reasons, secrets masked; a repeated record is kept once."""
    records = list(flagged)
    if not records:
        return
    masker = current_masker()
    rows = []
    for record in records:
        rows.append(
            FlaggedRecord(
                cluster=cluster,
                source=source,
                digest=keyed_digest(record.raw),
                raw=clean_text(masker.mask_text(record.raw[:MOST_RAW]), MOST_RAW),
                reason=clean_text(record.reason, 500),
                stored=record.record is not None,
                received_at=at,
            )
        )
    FlaggedRecord.objects.bulk_create(rows, ignore_conflicts=True)


def flagged_reasons() -> list[dict[str, Any]]:
    """Return the number of records by cluster and reason, largest first."""
    counted = FlaggedRecord.objects.values("cluster__name", "reason", "stored").annotate(
        records=Count("pk"), last_at=Max("received_at")
    )
    return [
        dict(counts)
        for counts in counted.order_by("-records", "cluster__name", "reason")[:MOST_REASONS]
    ]


def flagged_records(*, cluster: str = "", reason: str = "") -> QuerySet[FlaggedRecord]:
    """Return flagged records, optionally of one cluster and with one reason."""
    records = FlaggedRecord.objects.select_related("cluster")
    if cluster:
        records = records.filter(cluster__name=cluster)
    if reason:
        records = records.filter(reason=reason)
    return records


def forget_flagged(*, at: datetime) -> None:
    """Delete records received more than `KEPT` ago."""
    FlaggedRecord.objects.filter(received_at__lt=at - KEPT).delete()
