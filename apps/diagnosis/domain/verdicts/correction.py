"""Show the verdict on a job, and let users override it."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import F, QuerySet
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Principal
from apps.archive.domain.store.contents import DamagedContent, archived_job_for, read_blob
from apps.archive.models import ArchivedJob
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, NotAllowed
from apps.diagnosis.domain.causes.totals import mark_dirty
from apps.diagnosis.domain.groups.triage import group_for
from apps.diagnosis.domain.groups.waits import waits_by_service
from apps.diagnosis.domain.known_errors.exit_codes import Explanation, explanation_of
from apps.diagnosis.domain.reading.job_facts import facts_of as engine_facts_of
from apps.diagnosis.domain.verdicts.archived import archived_verdicts
from apps.diagnosis.domain.verdicts.experience import propose_from_corrections
from apps.diagnosis.enums import ADVICE_OF, Advice, HarvestState, Stream, VerdictKind
from apps.diagnosis.models import LogExcerpt, LogHarvest, Verdict
from apps.diagnosis.permissions import may_correct_verdict
from apps.diagnosis.wording import headline_of
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.domain.records.jobs import Mark
from apps.jobs.models import Job
from apps.statusboard.models import Service

#: Size of the part of a script that is searched for the programs that it runs.
SCRIPT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ReasonView:
    """A reason of a verdict to show, with the URL of its evidence and the text of the link."""

    kind: str
    text: str
    url: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class JobDiagnosis:
    """The diagnosis of a job as its page shows it.

    Without a verdict, `harvest` has the state of the log analysis.
    """

    job: Job
    verdict: Verdict | None
    harvest: LogHarvest | None
    headline: str
    ending: Explanation | None = None
    #: What to do first: while the service of the verdict is down, to wait for it.
    wait: str = ""

    @property
    def is_waiting(self) -> bool:
        return self.harvest is not None and self.harvest.state in {
            HarvestState.QUEUED,
            HarvestState.RUNNING,
        }

    @property
    def reasons(self) -> list[ReasonView]:
        """The reasons of the verdict, with links to their evidence."""
        log_url = reverse("diagnosis:log", args=[self.job.pk])
        reasons = []
        for reason in self.verdict.reasons if self.verdict else ():
            what, _, where = reason.get("target", "").partition(":")
            url = ""
            link = ""
            if what in list(Stream) and where.isdigit():
                url = f"{log_url}?stream={what}&at={where}#b{where}"
                link = "log"
            elif what == "service" and where:
                url = Service(slug=where).get_absolute_url()
                link = where
            reasons.append(ReasonView(reason.get("kind", ""), reason.get("text", ""), url, link))
        return reasons


def job_diagnosis(
    job: Job, at: datetime | None = None, *, archived: ArchivedJob | None = None
) -> JobDiagnosis:
    """Return the verdict on a job and the state of its log analysis.

    What its exit code or signal means is left out where the verdict names another cause.
    With `at`, the headline reports whether a retry has to wait for the service. `archived` is the
    capture of the job, if it is loaded already.
    """
    verdict = Verdict.objects.filter(job=job).select_related("group").first()
    harvest = LogHarvest.objects.filter(job=job).first()

    def read_text() -> str:
        """Return the script and the ends of the logs, which show the programs that ran."""
        capture = archived or archived_job_for(job)
        script = b""
        if capture is not None:
            with suppress(DamagedContent):
                script = read_blob(capture.script)
        ends = [excerpt.data for excerpt in LogExcerpt.objects.filter(harvest__job=job)]
        return b"\n".join([script[:SCRIPT_BYTES], *ends]).decode(errors="replace")

    ending = explanation_of(engine_facts_of(job), read_text=read_text)
    if verdict is None:
        return JobDiagnosis(job, None, harvest, "", ending=ending)

    if at and verdict.verdict == VerdictKind.SERVICE:
        waits = waits_by_service(at)
    else:
        waits = {}
    wait = waits.get(verdict.service.lower(), "")
    headline = headline_of(verdict, wait=wait)
    if ending is not None and not _agrees(ending, verdict):
        ending = None
    return JobDiagnosis(job, verdict, harvest, headline, ending, wait)


def _agrees(ending: Explanation, verdict: Verdict) -> bool:
    """Return whether what a number usually means may stand beside a verdict.

    Programs and wrappers use the same numbers for many failures. A cause that the log names counts
    for more, unless the meaning is certain or of the same category.
    """
    meaning = ending.meaning
    return not verdict.cause or meaning.certain or meaning.category == verdict.category


def marks_of(jobs: Sequence[Job]) -> dict[int, Mark]:
    """Return the verdicts on these jobs for the job list, by job ID.

    If the service of a verdict is down now, its headline says to wait.
    """
    verdicts = [*Verdict.objects.filter(job__in=jobs), *archived_verdicts(jobs)]
    waits = waits_by_service(timezone.now())

    marks = {}
    for verdict in verdicts:
        wait = ""
        if verdict.verdict == VerdictKind.SERVICE:
            wait = waits.get(verdict.service.lower(), "")
        headline = headline_of(verdict, wait=wait)
        marks[verdict.job_id] = Mark(verdict.verdict, headline, is_verdict=True)
    return marks


def facts_of(jobs: Collection[int]) -> dict[int, dict[str, str]]:
    """Return verdict and cause of these jobs for the statistics, by job ID."""
    rows = Verdict.objects.filter(job__in=jobs).values_list("job_id", "verdict", "cause")
    return {job: {"verdict": verdict, "cause": cause} for job, verdict, cause in rows}


@transaction.atomic
def override_verdict(
    *, job: Job, verdict: VerdictKind, by: Principal, at: datetime, reason: str
) -> Verdict:
    """Override the verdict on a job; later analyses of its log keep the override.

    Raises `NotAllowed`, and `InvalidFields` without a reason.
    """
    if not may_correct_verdict(by, job.experiment_id):
        raise NotAllowed("Only the OPG and liaisons of the experiment can correct a verdict.")
    if not reason.strip():
        raise InvalidFields({"reason": ["Enter a reason. The next shift will read it."]})
    old = (
        Verdict.objects.select_for_update(of=("self",))
        .select_related("group", "job")
        .filter(job=job)
        .first()
    )
    if old is None:
        raise NotAllowed("This job has no verdict yet. Wait for the log analysis to finish.")
    event_old = old.verdict
    old.verdict = verdict
    old.advice = Advice.NONE if old.later_state else ADVICE_OF[verdict]
    old.overridden_by = str(by)[:150]
    old.overridden_at = at
    old.override_reason = reason.strip()
    group = old.group
    old.group = group_for(
        old, title=group.title if group else old.summary, line=group.line if group else "", at=at
    )
    old.save(
        update_fields=[
            "verdict",
            "advice",
            "group",
            "overridden_by",
            "overridden_at",
            "override_reason",
        ],
    )
    mark_dirty({hour_of(old.ended_at)})
    publish(
        kind="verdict.overridden",
        target=job,
        by=by,
        at=at,
        old=event_old,
        new=verdict,
        reason=reason.strip(),
    )
    propose_from_corrections(verdict=old, at=at)
    return old


@transaction.atomic
def assign_experiments(*, jobs: QuerySet[Job]) -> int:
    """Copy the experiments of these jobs to their verdicts; return how many changed."""
    rows = (
        Verdict.objects.select_for_update(of=("self",)).select_related("job").filter(job__in=jobs)
    )
    differing = rows.exclude(experiment=F("job__experiment"))  # includes rows without experiments
    verdicts = [
        verdict for verdict in differing if verdict.experiment_id != verdict.job.experiment_id
    ]
    for verdict in verdicts:
        verdict.experiment_id = verdict.job.experiment_id
    Verdict.objects.bulk_update(verdicts, ["experiment"], batch_size=500)
    mark_dirty({hour_of(verdict.ended_at) for verdict in verdicts})
    return len(verdicts)
