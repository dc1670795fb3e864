"""Keep the stored impact of incidents equal to a recount.

Changes mark incidents, marked incidents are recounted, and a nightly run verifies the result.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import DateTimeField, Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from apps.diagnosis.domain.causes.impact.count import BASELINE, count_bins, count_groups
from apps.diagnosis.models import DirtyImpact, Impact, ImpactGroup
from apps.jobs.models import Job
from apps.statusboard.domain.states.timeline import FOREVER
from apps.statusboard.models import Incident

log = logging.getLogger(__name__)

_IMPACT_LOCK = 4_716_031
#: Minimum time between two recounts of an incident: jobs arrive every few seconds.
PAUSE = timedelta(minutes=2)
#: The nightly recount covers incidents of this period.
VERIFIED = timedelta(days=30)


def mark_incidents(incident_pks: Iterable[int]) -> None:
    """Mark incidents for a recount of their impact, in the caller's transaction."""
    DirtyImpact.objects.bulk_create(DirtyImpact(incident_id=pk) for pk in sorted(set(incident_pks)))


def mark_met_by(jobs: QuerySet[Job], *, baseline: bool = True) -> None:
    """Mark the incidents that these jobs were exposed to.

    With `baseline`, also mark those whose baseline includes the jobs.
    """
    before = BASELINE if baseline else timedelta()
    end = Coalesce(OuterRef("ended_at"), Value(FOREVER), output_field=DateTimeField())
    met = jobs.order_by().filter(
        started_at__lte=end, ended_at__gte=OuterRef("started_at") - Value(before)
    )
    rows = Incident.objects.filter(Exists(met)).values_list(
        Coalesce("merged_into", "pk"), flat=True
    )
    mark_incidents(rows)


def recount_marked(*, at: datetime, limit: int = 50) -> int:
    """Recount the impact of marked incidents, newest first; return the number of incidents."""
    resting = Impact.objects.filter(incident=OuterRef("incident"), counted_at__gt=at - PAUSE)
    marked = DirtyImpact.objects.filter(~Exists(resting)).order_by(
        "-incident__started_at", "-incident_id"
    )
    pks = list(marked.values_list("incident_id", flat=True).distinct()[:limit])
    for pk in pks:
        recount_impact(incident_id=pk, at=at)
    return len(pks)


@transaction.atomic
def recount_impact(*, incident_id: int, at: datetime) -> bool:
    """Recount the impact of one incident; return whether it differs from the stored impact.

    A mark is committed with the change that it stands for, and removed before the count, so no
    change is missed.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_IMPACT_LOCK, incident_id])
    DirtyImpact.objects.filter(incident=incident_id).delete()
    incident = (
        Incident.objects.select_related("service").prefetch_related("merged").get(pk=incident_id)
    )
    Impact.objects.filter(incident__merged_into=incident).delete()
    stored = _plain(ImpactGroup.objects.filter(impact__incident=incident))
    groups = [] if incident.merged_into_id else count_groups(incident)
    impact = count_bins(incident, at)
    Impact.objects.filter(incident=incident).delete()
    if not incident.merged_into_id:
        impact.save()
        for group in groups:
            group.impact = impact
        ImpactGroup.objects.bulk_create(groups)
    return _plain(groups) != stored


def _plain(groups: Iterable[ImpactGroup]) -> list[list[tuple[str, str]]]:
    """Return the figures of groups in a form that can be compared."""
    rows = []
    for group in groups:
        figures = []
        for field in ImpactGroup._meta.concrete_fields:
            if field.name in {"id", "impact"}:
                continue
            value = field.value_from_object(group)
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            figures.append((field.name, text))
        rows.append(sorted(figures))
    return sorted(rows)


def verify_impacts(*, at: datetime) -> int:
    """Recount the impact of recent incidents; log and return how many differed from the stored one.

    Marked incidents are not counted, since they are expected to differ.
    """
    recent = Incident.objects.filter(
        Q(ended_at=None) | Q(ended_at__gt=at - VERIFIED), merged_into=None
    )
    marked = set(DirtyImpact.objects.values_list("incident_id", flat=True))
    differing = []
    for incident in recent.order_by("pk"):
        if recount_impact(incident_id=incident.pk, at=at) and incident.pk not in marked:
            differing.append(incident.pk)
    if differing:
        log.warning(
            "stored impact of %d incidents differs from a recount: %s",
            len(differing),
            differing[:20],
        )
    return len(differing)
