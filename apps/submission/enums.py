"""States of a submission and their transitions."""

from collections.abc import Mapping

from django.db import models


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
