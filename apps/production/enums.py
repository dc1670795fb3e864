"""The states of a request and the one table of its moves. Who may make them is worked out in `permissions`."""

from django.db import models


class RequestState(models.TextChoices):
    """Where a request stands."""

    DRAFT = "draft", "draft"
    SUBMITTED = "submitted", "submitted"
    CHECKING = "checking", "being checked"
    CHANGES_ASKED = "changes_asked", "changes asked"
    AWAITING_APPROVAL = "awaiting_approval", "awaiting approval"
    APPROVED = "approved", "approved"
    QUEUED = "queued", "queued"
    TESTING = "testing", "in test"
    RUNNING = "running", "running"
    HELD = "held", "held"
    COMPLETING = "completing", "completing"
    DATA_QUALITY = "data_quality", "data quality"
    DONE = "done", "done"
    DONE_PARTIAL = "done_partial", "done in part"
    REJECTED = "rejected", "rejected"
    CANCELLED = "cancelled", "cancelled"
    SUPERSEDED = "superseded", "superseded"


_S = RequestState

#: A liaison writes while the request is here; everywhere else it is what was submitted.
EDITABLE = frozenset({_S.DRAFT, _S.CHANGES_ASKED})
#: Signed, or about to be: a material change goes back to be checked and signed again, by the move “change”.
CHANGEABLE = (_S.AWAITING_APPROVAL, _S.APPROVED, _S.QUEUED)
#: What may be changed there while the signatures hold. The deadline may only become later.
IMMATERIAL = frozenset({"title", "purpose", "priority_reason", "deadline"})
#: Here arguments may be changed whose declaration names the state as `editable_in`; in these alone, nothing else.
BY_ARGUMENT = frozenset({_S.AWAITING_APPROVAL, _S.APPROVED, _S.QUEUED, _S.TESTING, _S.RUNNING, _S.HELD})
#: It has its signatures, and jobs may run for it.
SIGNED = (
    _S.APPROVED,
    _S.QUEUED,
    _S.TESTING,
    _S.RUNNING,
    _S.HELD,
    _S.COMPLETING,
    _S.DATA_QUALITY,
    _S.DONE,
    _S.DONE_PARTIAL,
)
#: It has ended. Nothing follows, but that another request takes the place of one that is done.
CLOSED = frozenset({_S.DONE, _S.DONE_PARTIAL, _S.REJECTED, _S.CANCELLED, _S.SUPERSEDED})
#: An approver sets the priority while it matters.
PRIORITISED = frozenset({_S.AWAITING_APPROVAL, _S.APPROVED, _S.QUEUED, _S.TESTING, _S.RUNNING, _S.HELD})
#: From here it can be held, and goes back.
HOLDABLE = (_S.QUEUED, _S.TESTING, _S.RUNNING)
#: The OPG works on it.
IN_PRODUCTION = frozenset({_S.TESTING, _S.RUNNING, _S.HELD, _S.COMPLETING, _S.DATA_QUALITY})


#: No job has been sent for it: it can still be split, or combined with others.
UNSENT = (
    _S.DRAFT,
    _S.SUBMITTED,
    _S.CHECKING,
    _S.CHANGES_ASKED,
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
    """What is done to a request's state; the value is also its address, the label its button."""

    SUBMIT = "submit", "Submit"
    CHECK = "check", "Check"
    CHANGE = "change", "Change"
    PASS = "pass", "Pass on"
    FAIL = "fail", "Give back"
    APPROVE = "approve", "Approve"
    ASK_FOR_CHANGES = "ask-for-changes", "Ask for changes"
    REJECT = "reject", "Reject"
    QUEUE = "queue", "Put in the queue"
    TEST = "test", "Start the test"
    FAIL_TEST = "fail-test", "Test failed"
    START = "start", "Start production"
    HOLD = "hold", "Hold"
    RELEASE = "release", "Release"
    COMPLETE = "complete", "Jobs have ended"
    EXAMINE = "examine", "Look at data quality"
    RESUME = "resume", "Resume"
    DONE = "done", "Mark as done"
    DONE_PARTIAL = "done-partial", "Done in part"
    CANCEL = "cancel", "Cancel"
    SUPERSEDE = "supersede", "Supersede"


class Who(models.TextChoices):
    """Who may make a move; `permissions.PREDICATES` has one function for each."""

    LIAISON = "liaison", "a liaison of the experiment"
    APPROVER = "approver", "an approver who is not the requester"
    SIGNER = "signer", "who may sign for a group that must, and is not the requester"
    DECIDER = "decider", "an approver or who may sign, and is not the requester"
    OPERATOR = "operator", "an approver or shifter of the OPG"
    OPERATOR_OR_PORTAL = "operator_or_portal", "an approver or shifter of the OPG, or the portal itself"
    EITHER = "either", "a liaison of the experiment or an approver"
    PORTAL = "portal", "the portal itself"


#: Moves that come along with what a person writes, not by a button of their own.
WRITTEN = frozenset({Verb.CHANGE})

#: The name under which the portal itself moves requests.
PORTAL = "opsportal"
