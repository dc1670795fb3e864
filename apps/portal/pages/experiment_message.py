"""A message to an experiment, prefilled with the facts about a failed job, group or incident."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Sum
from django.utils import timezone

from apps.accounts.models import Experiment, User
from apps.diagnosis.domain.causes.impact.figures import impact_of
from apps.diagnosis.models import DailyCauseTotals, FailureGroup, Verdict
from apps.diagnosis.wording import headline_of
from apps.jobs.models import Job
from apps.notifications.domain.experiment_messages import Subject, liaisons_of
from apps.statusboard.models import Incident


@dataclass(frozen=True)
class Recipients:
    """An experiment, and the liaisons who receive its messages."""

    experiment: Experiment
    liaisons: list[User]


@dataclass(frozen=True)
class MessageDraft:
    """What a message is about, who may receive it, and its text before it is edited."""

    subject: Subject
    title: str
    recipients: list[Recipients]
    text: str


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
    for experiment in experiments:
        recipients.append(Recipients(experiment, list(liaisons_of(experiment))))
    return MessageDraft(subject, str(subject), recipients, "\n".join([*lines, address]))


def _about_job(job: Job) -> tuple[list[Experiment], list[str]]:
    lines = [f"Job {job} ended {_time(job.ended_at)}: {job.state.replace('_', ' ')}."]
    if job.request_key:
        lines.append(f"Request {job.request_key}, stage {job.stage or 'unknown'}.")
    if verdict := Verdict.objects.filter(job=job).first():
        lines += [f"{headline_of(verdict)}.", verdict.summary]
    return [job.experiment] if job.experiment else [], lines


def _about_group(group: FailureGroup, user: User) -> tuple[list[Experiment], list[str]]:
    totals = DailyCauseTotals.objects.visible_to(user).filter(group=group)
    counts = totals.exclude(experiment=None).order_by().values_list("experiment")
    jobs = dict(counts.annotate(all_jobs=Sum("jobs")))
    experiments = Experiment.objects.filter(pk__in=jobs).order_by("key")
    lines = [f"F-{group.pk}: {group.title}"]
    lines += _job_lines((experiment.key, jobs[experiment.pk]) for experiment in experiments)
    lines.append(f"Last seen {_time(group.last_seen_at)}.")
    return list(experiments), lines


def _about_incident(incident: Incident, user: User) -> tuple[list[Experiment], list[str]]:
    counts = dict(impact_of(incident, user).experiments)
    experiments = Experiment.objects.filter(key__in=counts).order_by("key")
    until = f"until {_time(incident.ended_at)}" if incident.ended_at else "and still is"
    was_out = (
        f"{incident.service.name} was {incident.state} from {_time(incident.started_at)} {until}: "
        f"{incident.title}"
    )
    lines = [
        was_out,
        *_job_lines((experiment.key, counts[experiment.key]) for experiment in experiments),
    ]
    return list(experiments), lines


def _job_lines(counts: Iterable[tuple[str, int]]) -> list[str]:
    lines = []
    for experiment, jobs in counts:
        lines.append(f"{experiment}: {jobs:,} failed job{'s' * (jobs != 1)}.")
    return lines


def _time(at: datetime) -> str:
    local = timezone.localtime(at)
    return f"{local.day} {local:%b %Y %H:%M %Z}"
