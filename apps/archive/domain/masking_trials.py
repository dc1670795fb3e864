"""Try a masking rule on archived jobs."""

from collections import Counter
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Max, Q

from apps.accounts.models import Principal
from apps.archive.domain.store.contents import DamagedContent, read_blob
from apps.archive.enums import BlobKind
from apps.archive.models import ArchivedJob, Blob, MaskingTrial
from apps.clusters.schedulers.environment import variables_in
from apps.core.domain.background import enqueue
from apps.core.domain.secrets.masking import Masker
from apps.core.domain.work import BackOff, Queue
from apps.jobs.models import MaskingRule

#: Number of environments that one task reads before it lets the next task run.
STEP = 2_000
_MOST_NAMES = 1_000
_LOST_AFTER = timedelta(minutes=5)
_TASK = "archive.continue_masking_trial"
TRIALS = Queue(
    name="masking_trials",
    title="Dry runs of masking rules",
    model=MaskingTrial,
    unfinished_rows=Q(finished_at=None),
    back_off=BackOff((10,)),
)


@transaction.atomic
def start_trial(*, rule: MaskingRule, by: Principal, at: datetime) -> MaskingTrial:
    """Start to search all archived environments for values that `rule` would mask."""
    environments = Blob.objects.filter(kind=BlobKind.ENVIRONMENT)
    trial = MaskingTrial.objects.create(
        rule=rule,
        applies_to=rule.applies_to,
        pattern=rule.pattern,
        started_by=str(by),
        started_at=at,
        due_at=at,
        until_blob=environments.aggregate(last=Max("pk"))["last"] or 0,
    )
    enqueue(_TASK, trial_id=trial.pk)
    return trial


def continue_trial(*, trial_id: int, at: datetime) -> None:
    """Search the next environments; do nothing if another process does or all are done."""

    def search_next(trial: MaskingTrial) -> None:
        _search_next(trial, at)

    TRIALS.process(TRIALS.unfinished().filter(pk=trial_id), search_next, at=at)


def _search_next(trial: MaskingTrial, at: datetime) -> None:
    blobs = Blob.objects.filter(
        kind=BlobKind.ENVIRONMENT, pk__gt=trial.last_blob, pk__lte=trial.until_blob
    )
    step = list(blobs.order_by("pk")[:STEP])
    _look_through(trial, step)
    if len(step) < STEP:
        trial.finished_at = at
    else:
        trial.last_blob = step[-1].pk
        enqueue(_TASK, trial_id=trial.pk)
    trial.due_at = at
    trial.attempts = 0
    trial.last_error = ""
    trial.save()


def continue_lost_trials(*, at: datetime) -> None:
    """Send a message again for trials whose message or worker was lost."""
    for trial in TRIALS.take_overdue(at=at, grace=_LOST_AFTER):
        enqueue(_TASK, trial_id=trial.pk)


def _look_through(trial: MaskingTrial, blobs: list[Blob]) -> None:
    """Add the matches of the rule in `blobs` to the trial.

    Values that are already masked do not count.
    """
    rule = MaskingRule(applies_to=trial.applies_to, pattern=trial.pattern)
    masker = Masker(names="", key=b"", rules=[rule.as_rule()])
    names: Counter[str] = Counter(trial.names)
    matching_environments = []
    for blob in blobs:
        try:
            variables = []
            for pair in variables_in(read_blob(blob)):
                if not pair[1].startswith(b"<masked:"):
                    variables.append(pair)
        except DamagedContent:  # reported by `archive verify`
            continue
        masked_names = masker.mask(variables)[1]
        if masked_names:
            matching_environments.append(blob.pk)
            names.update(masked_names)

    trial.environments += len(blobs)
    trial.found_environments += len(matching_environments)
    trial.found_jobs += ArchivedJob.objects.filter(environment__in=matching_environments).count()
    trial.names = dict(names.most_common(_MOST_NAMES))
