"""States of a submission, and what may follow each."""

from collections.abc import Mapping

from django.db import models


class SubmissionState(models.TextChoices):
    """How far a submission is on its way to the scheduler."""

    PLANNED = "planned", "planned"
    SENDING = "sending", "being sent"
    SENT = "sent", "sent"
    FAILED = "failed", "refused"
    UNKNOWN = "unknown", "not known"


_S = SubmissionState

MOVES: Mapping[str, frozenset[str]] = {
    _S.PLANNED: frozenset({_S.SENDING, _S.FAILED}),
    _S.SENDING: frozenset({_S.SENT, _S.FAILED, _S.UNKNOWN}),
    _S.UNKNOWN: frozenset({_S.SENT, _S.PLANNED, _S.FAILED}),
    _S.FAILED: frozenset({_S.PLANNED}),
    _S.SENT: frozenset(),
}
#: Their jobs are with the scheduler, or may be.
ABROAD = (_S.SENDING, _S.UNKNOWN, _S.SENT)
