"""What earlier cases of a failure came to: corrected verdicts, outcomes of retries,
and what users made of its groups.

Cases are verdicts with the same symptom: known error, masked line and frame, whatever the verdict.
They are shown as a suggestion, and never change a verdict. Where users agree often enough, a known
error is proposed for approval.
"""

import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.functional import cached_property

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.core.domain.events import publish
from apps.diagnosis.domain.known_errors.changes import PORTAL, read_row, values_of
from apps.diagnosis.domain.known_errors.proposal import id_of, pattern_of
from apps.diagnosis.engine.catalogue import regex_fault
from apps.diagnosis.enums import (
    ADVICE_OF,
    CATEGORY_OF_CORRECTION,
    ChangeState,
    GroupStatus,
    Role,
    VerdictKind,
)
from apps.diagnosis.models import FailureGroup, KnownError, KnownErrorChange, Verdict

#: Cases looked at: the newest ones of a year.
CASES = 500
PERIOD = timedelta(days=365)
#: A share is worth a suggestion from so many retries on.
RETRIES = 5
#: So many equal corrections, by users of at least two names, propose a known error.
AGREE = 3
USERS = 2
_EXAMPLES = {
    "time": "2026-01-01T00:00:00",
    "id": "00000000-0000-0000-0000-000000000000",
    "hex": "0x0",
    "path": "/path/to/file",
    "n": "1",
}
#: Users who set one of these have looked at a group.
CONFIRMED = (GroupStatus.KNOWN, GroupStatus.ASSIGNED, GroupStatus.RETRIED, GroupStatus.RESOLVED)


@dataclass(frozen=True)
class Experience:
    """The earlier cases of a symptom that a user may see;
    `retried` have a finished later attempt or retry.
    """

    cases: int
    retried: int
    succeeded: int
    corrected: tuple[tuple[VerdictKind, int], ...]
    groups: tuple[FailureGroup, ...]

    @cached_property
    def suggestion(self) -> str:
        """What the cases suggest, in words; "" if they are too few or disagree."""
        parts = []
        if self.corrected:
            kind, count = self.corrected[0]
            if len(self.corrected) == 1 and count > 1:
                parts.append(f"Users judged it as: {kind.label.lower()}.")
        if self.retried >= RETRIES:
            if self.succeeded >= 0.8 * self.retried:
                parts.append("A retry usually succeeds.")
            elif self.succeeded <= 0.2 * self.retried:
                parts.append("A retry rarely helps.")
        return " ".join(parts)


def experience_of(
    verdict: Verdict, *, user: User, at: datetime, with_itself: bool = False
) -> Experience | None:
    """Return how earlier cases of a verdict's symptom ended; None if no case is informative.

    Two queries, of at most 500 cases. `with_itself` counts the verdict's own job, too: for the page
    of its group.
    """
    if not verdict.symptom:
        return None
    rows = Verdict.objects.visible_to(user).filter(
        symptom=verdict.symptom, ended_at__gte=at - PERIOD
    )
    if not with_itself:
        rows = rows.exclude(pk=verdict.pk)
    fields = ("verdict", "overridden_at", "later_state", "group")
    cases = list(rows.order_by("-ended_at").values_list(*fields)[:CASES])

    corrected = Counter(VerdictKind(kind) for kind, overridden_at, _, _ in cases if overridden_at)
    retried = [later for _, _, later, _ in cases if later]
    ids = {group for *_, group in cases if group}
    groups = FailureGroup.objects.filter(pk__in=ids, status__in=CONFIRMED).order_by("-status_at")[
        :3
    ]
    experience = Experience(
        len(cases),
        len(retried),
        retried.count(JobState.COMPLETED),
        tuple(corrected.most_common()),
        tuple(groups),
    )
    if experience.retried or experience.corrected or experience.groups:
        return experience
    return None


def propose_from_corrections(*, verdict: Verdict, at: datetime) -> KnownErrorChange | None:
    """Propose a known error if users have corrected verdicts of one symptom alike often enough;
    None if not.

    In the transaction of a correction. Nothing is proposed for a failure that a known error
    explains, or twice: a rejected proposal stays rejected. If all cases are of one experiment, it
    applies to its jobs only.
    """
    kind = VerdictKind(verdict.verdict)
    if not verdict.symptom or not verdict.message or kind not in CATEGORY_OF_CORRECTION:
        return None
    corrected = Verdict.objects.filter(symptom=verdict.symptom, overridden_at__isnull=False)
    fields = ("verdict", "overridden_by", "experiment__key")
    cases = list(corrected.order_by("-overridden_at").values_list(*fields)[:CASES])
    kinds, users, experiments = (set(values) for values in zip(*cases, strict=True))
    if len(cases) < AGREE or kinds != {kind} or len(users) < USERS:
        return None
    line = _example_of(verdict.message)
    pattern = pattern_of(line)
    known_error = id_of(line, verdict.service)
    if not line or not pattern or not known_error or regex_fault(pattern, line):
        return None
    if (
        KnownError.objects.filter(pk=known_error).exists()
        or KnownErrorChange.objects.filter(known_error=known_error).exists()
    ):
        return None
    values = {
        "title": line[:100],
        "category": CATEGORY_OF_CORRECTION[kind],
        "service": verdict.service or "program",
        "regex": pattern,
        "role": Role.CAUSE,
        "advice": ADVICE_OF[kind],
        "example": line,
        "experiment": experiments.pop() or "" if len(experiments) == 1 else "",
    }
    row, problems = read_row(known_error, values)
    if problems:
        return None
    change = KnownErrorChange.objects.create(
        known_error=known_error,
        state=ChangeState.PROPOSED,
        values=values_of(row),
        by=PORTAL,
        at=at,
        reason=(
            f"{len(cases)} verdicts on this line were corrected to “{kind.label}”, none to another."
        ),
    )
    publish(kind="known_error.proposed", target=change, by=PORTAL, at=at, reason=change.reason)
    return change


def _example_of(message: str) -> str:
    """Return a line that a masked one could stand for: everyone sees proposals,
    so they show no value of a log.
    """
    return re.sub(r"<(time|id|hex|path|n)>", lambda placeholder: _EXAMPLES[placeholder[1]], message)
