"""The states of a request and the one table of its moves. Who may make them is worked out in `permissions`."""

from django.db import models


class RequestState(models.TextChoices):
    """Where a request stands."""

    DRAFT = "draft", "draft"
    SUBMITTED = "submitted", "submitted"
    CHECKING = "checking", "checking"
    CHANGES_REQUESTED = "changes_requested", "changes requested"
    AWAITING_APPROVAL = "awaiting_approval", "awaiting approval"
    APPROVED = "approved", "approved"
    QUEUED = "queued", "queued"
    TESTING = "testing", "testing"
    RUNNING = "running", "running"
    ON_HOLD = "on_hold", "on hold"
    COMPLETING = "completing", "completing"
    DATA_QUALITY = "data_quality", "data quality"
    DONE = "done", "done"
    DONE_PARTIAL = "done_partial", "partially done"
    REJECTED = "rejected", "rejected"
    CANCELLED = "cancelled", "cancelled"
    SUPERSEDED = "superseded", "superseded"


_S = RequestState

#: A liaison writes while the request is here; everywhere else it is what was submitted.
EDITABLE = frozenset({_S.DRAFT, _S.CHANGES_REQUESTED})
#: Signed, or about to be: a material change goes back to be checked and signed again, by the move “change”.
CHANGEABLE = (_S.AWAITING_APPROVAL, _S.APPROVED, _S.QUEUED)
#: What may be changed there while the signatures hold. The deadline may only become later.
IMMATERIAL = frozenset({"title", "purpose", "priority_reason", "deadline"})
#: Here arguments may be changed whose declaration names the state as `editable_in`; in these alone, nothing else.
BY_ARGUMENT = frozenset({_S.AWAITING_APPROVAL, _S.APPROVED, _S.QUEUED, _S.TESTING, _S.RUNNING, _S.ON_HOLD})
#: It has its signatures, and jobs may run for it.
SIGNED = (
    _S.APPROVED,
    _S.QUEUED,
    _S.TESTING,
    _S.RUNNING,
    _S.ON_HOLD,
    _S.COMPLETING,
    _S.DATA_QUALITY,
    _S.DONE,
    _S.DONE_PARTIAL,
)
#: It has ended. Nothing follows, but that another request takes the place of one that is done.
CLOSED = frozenset({_S.DONE, _S.DONE_PARTIAL, _S.REJECTED, _S.CANCELLED, _S.SUPERSEDED})
#: An approver sets the priority while it matters.
PRIORITISED = frozenset({_S.AWAITING_APPROVAL, _S.APPROVED, _S.QUEUED, _S.TESTING, _S.RUNNING, _S.ON_HOLD})
#: From here it can be held, and goes back.
HOLDABLE = (_S.QUEUED, _S.TESTING, _S.RUNNING)
#: The OPG works on it.
IN_PRODUCTION = frozenset({_S.TESTING, _S.RUNNING, _S.ON_HOLD, _S.COMPLETING, _S.DATA_QUALITY})


#: No job has been sent for it: it can still be split, or combined with others.
UNSENT = (
    _S.DRAFT,
    _S.SUBMITTED,
    _S.CHECKING,
    _S.CHANGES_REQUESTED,
    _S.AWAITING_APPROVAL,
    _S.APPROVED,
    _S.QUEUED,
)


class LinkKind(models.TextChoices):
    """How a later request came out of an earlier one; the label is what the earlier one became."""

    COMBINED = "combined", "combined into"
    SPLIT = "split", "split into"


class RequestedPriority(models.TextChoices):
    """How urgent the experiment says it is; the OPG sets the class that counts, one of the same."""

    LOW = "low", "low"
    NORMAL = "normal", "normal"
    HIGH = "high", "high"
    URGENT = "urgent", "urgent"


#: These need a reason.
ABOVE_NORMAL = frozenset({RequestedPriority.HIGH, RequestedPriority.URGENT})


class Verb(models.TextChoices):
    """A move between states; the value is also its address, the label its button."""

    SUBMIT = "submit", "Submit"
    CHECK = "check", "Run checks"
    CHANGE = "change", "Change"
    PASS = "pass", "Pass checks"
    RETURN = "return", "Return to requester"
    APPROVE = "approve", "Approve"
    REQUEST_CHANGES = "request-changes", "Request changes"
    REJECT = "reject", "Reject"
    QUEUE = "queue", "Add to queue"
    TEST = "test", "Start test"
    FAIL_TEST = "fail-test", "Mark test as failed"
    START = "start", "Start production"
    HOLD = "hold", "Hold"
    RELEASE = "release", "Release"
    COMPLETE = "complete", "Mark jobs as finished"
    REVIEW = "review", "Review data quality"
    RESUME = "resume", "Resume production"
    DONE = "done", "Mark as done"
    DONE_PARTIAL = "done-partial", "Mark as partially done"
    CANCEL = "cancel", "Cancel"
    SUPERSEDE = "supersede", "Supersede"


class Actor(models.TextChoices):
    """Who may make a move; `permissions.PREDICATES` has one function for each."""

    LIAISON = "liaison", "liaison of the experiment"
    APPROVER = "approver", "approver other than the requester"
    SIGNER = "signer", "member of a required approval group, other than the requester"
    DECIDER = "decider", "approver or member of a required approval group, other than the requester"
    OPERATOR = "operator", "approver or shifter"
    OPERATOR_OR_PORTAL = "operator_or_portal", "approver, shifter or the portal"
    LIAISON_OR_APPROVER = "liaison_or_approver", "liaison of the experiment or approver"
    PORTAL = "portal", "the portal"


#: Moves that come along with what a person writes, not by a button of their own.
WRITTEN = frozenset({Verb.CHANGE})

#: The name under which the portal itself moves requests.
PORTAL = "opsportal"
