"""A message to an experiment, prefilled with the facts about a failed job, group or incident."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import QuerySet, Sum
from django.utils import timezone

from apps.accounts.models import Experiment, User
from apps.clusters.schedulers.base import JobState
from apps.diagnosis.models import DailyCauseTotals, FailureGroup, ImpactGroup, Verdict
from apps.diagnosis.wording import headline_of
from apps.jobs.models import Job
from apps.notifications.domain.experiment_messages import Subject, liaisons_of
from apps.statusboard.models import Incident

#: Experiments with the number of their failed jobs, or None.
_Experiments = list[tuple[Experiment, int | None]]


@dataclass(frozen=True)
class MessageRecipients:
    """An experiment, the liaisons who receive its messages, and the number of its failed jobs.

    The number is None if the message is about one job.
    """

    experiment: Experiment
    liaisons: list[User]
    failed_jobs: int | None = None

    @property
    def own_line(self) -> str:
        """Return the line of the message that only this experiment gets, such as its figures."""
        if self.failed_jobs is None:
            return ""
        return f"{self.experiment.key}: {_count(self.failed_jobs)}."

    @property
    def in_words(self) -> str:
        """Return the experiment, its failed jobs and its liaisons, to choose among others."""
        names = ", ".join(liaison.username for liaison in self.liaisons) or "no liaison"
        if self.failed_jobs is None:
            return f"{self.experiment.name} ({names})"
        return f"{self.experiment.name}, {_count(self.failed_jobs)} ({names})"


@dataclass(frozen=True)
class MessageDraft:
    """What a message is about, who may receive it, and its text before it is edited.

    Each experiment gets its own line before the text.
    """

    subject: Subject
    title: str
    recipients: list[MessageRecipients]
    text: str

    def text_for(self, experiment: Experiment, text: str) -> str:
        """Return the message to one experiment, without what concerns the others."""
        for recipients in self.recipients:
            if recipients.experiment == experiment and recipients.own_line:
                return f"{recipients.own_line}\n{text}"
        return text


def draft_message(subject: Subject, *, user: User) -> MessageDraft:
    """Return a message about a job, group or incident to the experiments whose jobs it concerns."""
    if isinstance(subject, Job):
        experiments, lines = _about_job(subject)
    elif isinstance(subject, FailureGroup):
        experiments, lines = _about_group(subject, user)
    else:
        experiments, lines = _about_incident(subject, user)
    address = settings.PORTAL_URL + subject.get_absolute_url()
    recipients = []
    for experiment, failed_jobs in experiments:
        recipients.append(MessageRecipients(experiment, list(liaisons_of(experiment)), failed_jobs))
    return MessageDraft(subject, str(subject), recipients, "\n".join([*lines, address]))


def _about_job(job: Job) -> tuple[_Experiments, list[str]]:
    lines = [f"Job {job} ended {_time(job.ended_at)}: {JobState(job.state).text}."]
    if job.request_key:
        lines.append(f"Request {job.request_key}, stage {job.stage or 'unknown'}.")
    if verdict := Verdict.objects.filter(job=job).first():
        lines += [f"{headline_of(verdict)}.", verdict.summary]
    return [(job.experiment, None)] if job.experiment else [], lines


def _about_group(group: FailureGroup, user: User) -> tuple[_Experiments, list[str]]:
    totals = DailyCauseTotals.objects.visible_to(user).filter(group=group)
    lines = [f"F-{group.pk}: {group.title}", f"Last seen {_time(group.last_seen_at)}."]
    return _by_experiment(totals, "jobs"), lines


def _about_incident(incident: Incident, user: User) -> tuple[_Experiments, list[str]]:
    groups = ImpactGroup.objects.visible_to(user).filter(
        impact__incident=incident.merged_into_id or incident.pk, failed__gt=0
    )
    until = f"until {_time(incident.ended_at)}" if incident.ended_at else "and still is"
    was_out = (
        f"{incident.service.name} was {incident.state} from {_time(incident.started_at)} {until}: "
        f"{incident.title}"
    )
    return _by_experiment(groups, "failed"), [was_out]


def _by_experiment(rows: QuerySet[Any], field: str) -> _Experiments:
    """Return each experiment of these rows with the sum of a field, by key."""
    counts = rows.exclude(experiment=None).order_by().values_list("experiment")
    jobs = dict(counts.annotate(all_jobs=Sum(field)))
    experiments = Experiment.objects.filter(pk__in=jobs).order_by("key")
    return [(experiment, jobs[experiment.pk]) for experiment in experiments]


def _count(jobs: int) -> str:
    return "1 failed job" if jobs == 1 else f"{jobs:,} failed jobs"


def _time(at: datetime) -> str:
    local = timezone.localtime(at)
    return f"{local.day} {local:%b %Y %H:%M %Z}"
