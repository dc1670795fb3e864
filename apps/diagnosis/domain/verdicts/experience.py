"""Report how earlier cases of a failure ended: corrected verdicts, retries, status of groups.

Cases are verdicts with the same symptom (known error, masked line and frame), whatever the verdict.
They are shown as a suggestion, and never change a verdict. When enough users agree, a known error
is proposed.
"""

import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.functional import cached_property

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.core.domain.events import publish
from apps.diagnosis.domain.known_errors.changes import PORTAL, read_known_error, values_of
from apps.diagnosis.domain.known_errors.proposal import id_of, pattern_of
from apps.diagnosis.engine.evidence.catalogue import regex_fault
from apps.diagnosis.enums import (
    ADVICE_OF,
    CATEGORY_OF_CORRECTION,
    ChangeState,
    GroupStatus,
    Role,
    VerdictKind,
)
from apps.diagnosis.models import FailureGroup, KnownError, KnownErrorChange, Verdict

#: Maximum number of cases, the newest ones of a year.
CASES = 500
PERIOD = timedelta(days=365)
#: Minimum number of retries for a suggestion.
RETRIES = 5
#: Number of equal corrections, and of different users, that propose a known error.
AGREE = 3
USERS = 2
_EXAMPLES = {
    "time": "2026-01-01T00:00:00",
    "id": "00000000-0000-0000-0000-000000000000",
    "hex": "0x0",
    "path": "/path/to/file",
    "n": "1",
}
#: A group with one of these statuses has been reviewed by a user.
CONFIRMED = (GroupStatus.KNOWN, GroupStatus.ASSIGNED, GroupStatus.RETRIED, GroupStatus.RESOLVED)


@dataclass(frozen=True)
class Experience:
    """The earlier cases of a symptom that a user may see.

    `retried` cases have a finished later attempt or retry.
    """

    cases: int
    retried: int
    succeeded: int
    corrected: tuple[tuple[VerdictKind, int], ...]
    groups: tuple[FailureGroup, ...]

    @cached_property
    def suggestion(self) -> str:
        """The suggestion of the cases as text; "" if they are too few or disagree."""
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

    Makes two queries, for at most 500 cases. `with_itself` also counts the verdict's own job, for
    the page of its group.
    """
    if not verdict.symptom:
        return None
    verdicts = Verdict.objects.visible_to(user).filter(
        symptom=verdict.symptom, ended_at__gte=at - PERIOD
    )
    if not with_itself:
        verdicts = verdicts.exclude(pk=verdict.pk)
    fields = ("verdict", "overridden_at", "later_state", "group")
    cases = list(verdicts.order_by("-ended_at").values_list(*fields)[:CASES])

    corrected = Counter(VerdictKind(kind) for kind, overridden_at, _, _ in cases if overridden_at)
    retried = [later for _, _, later, _ in cases if later]
    ids = {group for *_, group in cases if group}
    if with_itself:
        # The page of a group shows its own status elsewhere.
        ids.discard(verdict.group_id)
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
    """Propose a known error if users have often enough made the same correction for one symptom.

    Return the proposal, or None. This runs in the transaction of a correction. A failure that a
    known error explains is not proposed, and nothing is proposed twice: a rejected proposal stays
    rejected. If all cases are from one experiment, the known error applies only to its jobs.
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
    entry, problems = read_known_error(known_error, values)
    if problems:
        return None
    change = KnownErrorChange.objects.create(
        known_error=known_error,
        state=ChangeState.PROPOSED,
        values=values_of(entry),
        by=PORTAL,
        at=at,
        reason=(
            f"{len(cases)} verdicts on this line were corrected to “{kind.label}”, none to another."
        ),
    )
    publish(kind="known_error.proposed", target=change, by=PORTAL, at=at, reason=change.reason)
    return change


def _example_of(message: str) -> str:
    """Return an example of a masked line.

    It contains no values from a log, since all users see proposals.
    """
    return re.sub(r"<(time|id|hex|path|n)>", lambda placeholder: _EXAMPLES[placeholder[1]], message)
