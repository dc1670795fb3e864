"""Purposes and states of submissions and batches, and reasons not to retry a job."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import models


class Purpose(models.TextChoices):
    """What the jobs of a submission are for. Only those for production count towards a request."""

    PRODUCTION = "production", "production"
    TEST = "test", "test"
    DEBUG = "debug", "debug re-run"


class HostChoice(models.TextChoices):
    """Where a debug re-run starts."""

    ANY = "any", "any host"
    SAME = "same", "the host of the job"
    OTHER = "other", "any other host"


class SubmissionState(models.TextChoices):
    """State of a submission."""

    PLANNED = "planned", "planned"
    SENDING = "sending", "submitting"
    SENT = "sent", "submitted"
    FAILED = "failed", "refused"
    UNKNOWN = "unknown", "unknown"


_S = SubmissionState

MOVES: Mapping[str, frozenset[str]] = {
    _S.PLANNED: frozenset({_S.SENDING, _S.FAILED}),
    _S.SENDING: frozenset({_S.SENT, _S.FAILED, _S.UNKNOWN}),
    _S.UNKNOWN: frozenset({_S.SENT, _S.PLANNED, _S.FAILED}),
    _S.FAILED: frozenset({_S.PLANNED}),
    _S.SENT: frozenset(),
}
#: The scheduler has, or may have, the jobs of submissions in these states.
IN_SCHEDULER = (_S.SENDING, _S.UNKNOWN, _S.SENT)


class ScoutState(models.TextChoices):
    """What the portal makes of the jobs of a stage that ended so far."""

    SCOUTING = "scouting", "first jobs"
    SOUND = "sound", "sound"
    BROKEN = "broken", "broken"


class BatchState(models.TextChoices):
    """State of a batch of retries."""

    RELEASING = "releasing", "releasing"
    STOPPED = "stopped", "stopped"
    RELEASED = "released", "released"
    FINISHED = "finished", "finished"
    CANCELLED = "cancelled", "cancelled"


_B = BatchState

BATCH_MOVES: Mapping[str, frozenset[str]] = {
    _B.RELEASING: frozenset({_B.RELEASED, _B.STOPPED, _B.CANCELLED, _B.FINISHED}),
    _B.STOPPED: frozenset({_B.RELEASING, _B.CANCELLED}),
    _B.RELEASED: frozenset({_B.FINISHED}),
    _B.FINISHED: frozenset(),
    _B.CANCELLED: frozenset(),
}


class RetryState(models.TextChoices):
    """State of one job of a batch of retries."""

    WAITING = "waiting", "waiting"
    RELEASED = "released", "released"
    SUCCEEDED = "succeeded", "succeeded"
    FAILED = "failed", "failed again"
    LEFT_OUT = "left_out", "left out"
    CANCELLED = "cancelled", "cancelled"


#: A job is in one batch at a time.
IN_BATCH = (RetryState.WAITING, RetryState.RELEASED)


@dataclass(frozen=True)
class NextStep:
    """What can be done about jobs that are not retried, and the section of the docs about it."""

    text: str
    document: str = ""
    section: str = ""


class LeftOut(models.TextChoices):
    """Why a failed job is not retried."""

    SUCCEEDED = "succeeded", "succeeded since"
    RETRIED = "retried", "retried since: the later attempt failed and counts on its own"
    IN_FLIGHT = "in-flight", "retry planned, queued or running"
    IN_BATCH = "in-batch", "in another batch of retries"
    BY_RULE = "by-rule", "will be retried by recovery rules"
    UNSETTLED = "unsettled", "not counted yet, or the scheduler may restart it"
    FORBIDDEN = (
        "forbidden",
        "left to others: you may not submit jobs of its request or experiment",
    )
    NOT_SENT = "not-sent", "not submitted by the portal"
    NO_SCRIPT = (
        "no-script",
        "not submitted by the portal, and its script was not captured as it ran",
    )
    CONFLICT = "conflict", "not submitted by the portal, and captures of it differ"
    UNTRUSTED = (
        "untrusted",
        "not submitted by the portal, and captured by a host that is not trusted",
    )
    SECRETS = (
        "secrets",
        "not submitted by the portal, and secrets of its environment are not archived",
    )
    TEST = "test", "test job: its request repeats the test"
    DEBUG = "debug", "debug re-run: not part of production"
    NOT_RUNNING = "not-running", "its request is not running"
    ACCEPTED = "accepted", "its stage was accepted without the failed jobs"
    GIVEN_UP = "given-up", "its input files were given up"
    CLUSTER = "cluster", "submission to its cluster is switched off"
    ATTEMPTS = "attempts", "at the limit of attempts"
    BUDGET = "budget", "over the budget of its stage"

    @property
    def next_step(self) -> NextStep | None:
        """What can be done about such jobs; None if nothing is needed, or nothing helps."""
        return _NEXT_STEPS.get(self)


_WITH_BUNDLE = NextStep(
    "Their owners can submit the retry bundle.", "submission", "retries-as-the-owner"
)
_NEXT_STEPS: Mapping[LeftOut, NextStep] = {
    LeftOut.NOT_SENT: _WITH_BUNDLE,
    LeftOut.UNTRUSTED: _WITH_BUNDLE,
    LeftOut.SECRETS: _WITH_BUNDLE,
    LeftOut.NO_SCRIPT: NextStep(
        "Only their owners can submit them again, with their own scripts. Capture keeps the "
        "scripts of later jobs.",
        "archive",
        "how-a-job-is-captured",
    ),
    LeftOut.CONFLICT: NextStep("Choose the right capture on the archive page of the job."),
    LeftOut.NOT_RUNNING: NextStep("Their request has to go on first."),
    LeftOut.CLUSTER: NextStep("An admin can switch submission on.", "submission", "enabling-it"),
    LeftOut.ATTEMPTS: NextStep("Raise the maximum attempts of the dry run."),
    LeftOut.BUDGET: NextStep("Raise the budget per stage of the dry run."),
    LeftOut.UNSETTLED: NextStep("Wait some minutes."),
}
#: Someone or something else than a rule has retried such a job.
ALREADY_RETRIED = (LeftOut.SUCCEEDED, LeftOut.RETRIED, LeftOut.IN_FLIGHT, LeftOut.IN_BATCH)
#: Only the owner of such a job can submit it again, with a bundle.
ONLY_BY_OWNER = (LeftOut.NOT_SENT, LeftOut.UNTRUSTED, LeftOut.SECRETS)
