"""Reading what a diagnosis needs, and verdicts and failures by cause for pages. Logs are shown by `log_windows`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import transaction
from django.urls import reverse

from apps.accounts.models import Principal
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, NotAllowed
from apps.diagnosis.domain.causes import mark_dirty
from apps.diagnosis.enums import ADVICE_OF, HarvestState, Stream, VerdictKind
from apps.diagnosis.models import LogHarvest, Verdict
from apps.diagnosis.permissions import may_judge
from apps.jobs.domain.records import hour_of
from apps.jobs.models import Job


@dataclass(frozen=True, slots=True)
class ShownReason:
    """A reason of a verdict with the address of what it speaks of; `link` is the words for it."""

    kind: str
    text: str
    url: str = ""
    link: str = ""


def _shown(job: Job, reason: Mapping[str, str]) -> ShownReason:
    what, _, where = reason.get("target", "").partition(":")
    shown = ShownReason(reason.get("kind", ""), reason.get("text", ""))
    if what in list(Stream) and where.isdigit():
        url = reverse("diagnosis:log", args=[job.pk])
        return replace(shown, url=f"{url}?stream={what}&at={where}#b{where}", link="in the log")
    if what == "service" and where:
        return replace(shown, url=reverse("statusboard:service-detail", args=[where]), link=where)
    return shown


@dataclass(frozen=True, slots=True)
class JobDiagnosis:
    """All that a job's page shows of its diagnosis. Without a verdict, `harvest` tells how far the log is read."""

    job: Job
    verdict: Verdict | None
    harvest: LogHarvest | None
    headline: str
    reasons: tuple[ShownReason, ...] = ()

    @property
    def is_waiting(self) -> bool:
        return self.harvest is not None and self.harvest.state in {HarvestState.QUEUED, HarvestState.RUNNING}


def job_diagnosis(job: Job) -> JobDiagnosis:
    """Return the verdict on a job and how far its log is read."""
    verdict = Verdict.objects.filter(job=job).first()
    harvest = LogHarvest.objects.filter(job=job).first()
    if verdict is None:
        return JobDiagnosis(job, None, harvest, "")
    reasons = tuple(_shown(job, reason) for reason in verdict.reasons)
    return JobDiagnosis(job, verdict, harvest, VerdictKind(verdict.verdict).headline, reasons)


@transaction.atomic
def override_verdict(*, job: Job, verdict: VerdictKind, by: Principal, at: datetime, reason: str) -> Verdict:
    """Put a person's verdict in force; no later reading of the log changes it.

    Raises `NotAllowed`, and `InvalidFields` without a reason.
    """
    if not may_judge(by, job.experiment_id):
        raise NotAllowed("Only the OPG and the experiment's liaisons may correct a verdict.")
    if not reason.strip():
        raise InvalidFields({"reason": ["Say why: the next shift reads it."]})
    old = Verdict.objects.select_for_update().filter(job=job).first()
    if old is None:
        raise NotAllowed("This job has no verdict yet; its log is still being read.")
    event_old = old.verdict
    old.verdict, old.advice = verdict, ADVICE_OF[verdict]
    old.overridden_by, old.overridden_at, old.override_reason = str(by)[:150], at, reason.strip()
    old.save(
        update_fields=["verdict", "advice", "overridden_by", "overridden_at", "override_reason"],
    )
    mark_dirty({hour_of(old.ended_at)})
    publish(kind="verdict.overridden", target=job, by=by, at=at, old=event_old, new=verdict, reason=reason.strip())
    return old


@transaction.atomic
def follow_experiments() -> int:
    """Give verdicts of no experiment that of their job, where it has one by now; return how many."""
    late = Verdict.objects.select_for_update(of=("self",)).filter(experiment=None, job__experiment__isnull=False)
    verdicts = list(late.select_related("job"))
    for verdict in verdicts:
        verdict.experiment_id = verdict.job.experiment_id
    Verdict.objects.bulk_update(verdicts, ["experiment"], batch_size=500)
    mark_dirty({hour_of(verdict.ended_at) for verdict in verdicts})
    return len(verdicts)
