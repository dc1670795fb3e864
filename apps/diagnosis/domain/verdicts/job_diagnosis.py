"""The diagnosis of jobs as pages, lists and statistics show it."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from django.urls import reverse
from django.utils import timezone

from apps.archive.domain.store.contents import DamagedContent, archived_job_for, read_blob
from apps.archive.models import ArchivedJob
from apps.diagnosis import wording
from apps.diagnosis.domain.groups.waits import down_services, wait_for, waits_by_service
from apps.diagnosis.domain.known_errors.exit_codes import ExitCodeExplanation, explanation_of
from apps.diagnosis.domain.reading.job_facts import facts_of as engine_facts_of
from apps.diagnosis.domain.verdicts.archived import archived_verdicts
from apps.diagnosis.enums import HarvestState, Stream, VerdictKind
from apps.diagnosis.models import LogExcerpt, LogHarvest, Verdict
from apps.jobs.domain.records.jobs import Mark
from apps.jobs.models import Job
from apps.statusboard.domain.board.names import service_names
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
    ending: ExitCodeExplanation | None = None
    #: What to do first: while the service of the verdict is down, to wait for it.
    wait: str = ""
    #: The name of the service to wait for.
    service_name: str = ""
    #: How the status board names the services of the verdict and of its reasons.
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_waiting(self) -> bool:
        return self.harvest is not None and self.harvest.state in {
            HarvestState.QUEUED,
            HarvestState.RUNNING,
        }

    @property
    def summary(self) -> str:
        """What the verdict says; never to read a log that could not be read."""
        if self.verdict is None:
            return ""
        without_log = (HarvestState.LOG_NOT_FOUND, HarvestState.PATH_NOT_ALLOWED)
        has_no_log = self.harvest is not None and self.harvest.state in without_log
        if has_no_log and self.verdict.summary == wording.NOTHING_MATCHED:
            return wording.NO_LOG
        return wording.summary_of(self.verdict, self.names.get(self.verdict.service, ""))

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
                link = self.names.get(where, where)
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

    trouble = None
    wait = ""
    if at and verdict.verdict == VerdictKind.SERVICE:
        trouble = down_services(at).get(verdict.service.lower())
    if at and trouble is not None:
        wait = wait_for(trouble, at)
    headline = wording.headline_of(verdict, wait=wait)
    if ending is not None and not _agrees(ending, verdict):
        ending = None
    service_name = trouble.service.name if trouble is not None else ""
    return JobDiagnosis(
        job,
        verdict,
        harvest,
        headline,
        ending,
        wait,
        service_name,
        service_names([verdict.service, *_services_of_reasons(verdict)]),
    )


def _services_of_reasons(verdict: Verdict) -> list[str]:
    """Return the slugs of the services to which reasons link."""
    slugs = []
    for reason in verdict.reasons:
        what, _, slug = reason.get("target", "").partition(":")
        if what == "service":
            slugs.append(slug)
    return slugs


def _agrees(ending: ExitCodeExplanation, verdict: Verdict) -> bool:
    """Return whether what a number usually means may stand beside a verdict.

    Programs and wrappers use the same numbers for many failures. A cause that the log names counts
    for more, unless the meaning is certain or of the same category.
    """
    meaning = ending.meaning
    return not verdict.cause or meaning.certain or meaning.category == verdict.category


def marks_of(jobs: Sequence[Job]) -> dict[int, Mark]:
    """Return the verdicts on these jobs for the job list, by job ID.

    The text is the next step; if the service of a verdict is down now, it says to wait.
    """
    verdicts = [*Verdict.objects.filter(job__in=jobs), *archived_verdicts(jobs)]
    waits = waits_by_service(timezone.now())

    marks = {}
    for verdict in verdicts:
        wait = ""
        if verdict.verdict == VerdictKind.SERVICE:
            wait = waits.get(verdict.service.lower(), "")
        step = wording.next_step_of(verdict, wait=wait)
        marks[verdict.job_id] = Mark(verdict.verdict, step, is_verdict=True)
    return marks


def facts_of(job_pks: Collection[int]) -> dict[int, dict[str, str]]:
    """Return verdict and cause of these jobs for the statistics, by job ID."""
    rows = Verdict.objects.filter(job__in=job_pks).values_list("job_id", "verdict", "cause")
    return {job_pk: {"verdict": verdict, "cause": cause} for job_pk, verdict, cause in rows}
