"""States, moves, actors and priorities of requests. `permissions` decides who is which actor."""

from django.db import models


class RequestState(models.TextChoices):
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

#: Liaisons edit requests in these states.
EDITABLE = frozenset({_S.DRAFT, _S.CHANGES_REQUESTED})
#: States with signatures or awaiting them. A material change makes the move “change”, so that
#: checks and signatures start over.
CHANGEABLE = (_S.AWAITING_APPROVAL, _S.APPROVED, _S.QUEUED)
#: Approved states before any job, in which a liaison can still change everything.
NOT_STARTED = frozenset({_S.APPROVED, _S.QUEUED})
#: Fields that can change in those states without a new approval. The deadline can only be
#: postponed.
IMMATERIAL = frozenset({"campaign", "title", "purpose", "priority_reason", "deadline"})
#: A request can be put on hold in these states, and returns to them when released.
HOLDABLE = (_S.QUEUED, _S.TESTING, _S.RUNNING)
#: The OPG produces or reviews the request.
IN_PRODUCTION = frozenset({_S.TESTING, _S.RUNNING, _S.ON_HOLD, _S.COMPLETING, _S.DATA_QUALITY})
#: In these states, a liaison can postpone the deadline without a new approval.
POSTPONABLE = frozenset({*CHANGEABLE, *IN_PRODUCTION})
#: Final states. A done request can still be superseded, and a rejected one reopened.
CLOSED = frozenset({_S.DONE, _S.DONE_PARTIAL, _S.REJECTED, _S.CANCELLED, _S.SUPERSEDED})
#: Approved states, in which jobs may run.
SIGNED = frozenset({_S.APPROVED, _S.QUEUED, _S.DONE, _S.DONE_PARTIAL}) | IN_PRODUCTION
#: Approvers can set the priority in these states.
PRIORITISED = frozenset({*CHANGEABLE, _S.TESTING, _S.RUNNING, _S.ON_HOLD})
#: Arguments can change in these states if their declaration lists the state in `editable_in`.
ARGUMENT_EDITABLE = PRIORITISED
#: States with a score in the queue: the request is approved, and jobs may still start.
SCORED = PRIORITISED - {_S.AWAITING_APPROVAL}
#: States without submitted jobs, except tests. The request can still be split or combined.
BEFORE_PRODUCTION = EDITABLE | {_S.SUBMITTED, _S.CHECKING, *CHANGEABLE}

#: Requests in these states reserve no runs, seeds or datasets.
UNCLAIMED = frozenset({_S.DRAFT, _S.REJECTED, _S.CANCELLED, _S.SUPERSEDED})


#: The sign of each state on pages. Similar states share one.
STATE_SIGNS = {
    _S.DRAFT: "draft",
    _S.SUBMITTED: "waiting",
    _S.CHECKING: "waiting",
    _S.AWAITING_APPROVAL: "waiting",
    _S.CHANGES_REQUESTED: "waiting",
    _S.APPROVED: "queued",
    _S.QUEUED: "queued",
    _S.TESTING: "running",
    _S.RUNNING: "running",
    _S.COMPLETING: "running",
    _S.DATA_QUALITY: "running",
    _S.ON_HOLD: "held",
    _S.DONE: "done",
    _S.DONE_PARTIAL: "done",
    _S.REJECTED: "cancelled",
    _S.CANCELLED: "cancelled",
    _S.SUPERSEDED: "cancelled",
}


class AttentionKind(models.TextChoices):
    """Why a request needs attention, most urgent first."""

    STUCK = "stuck", "stuck"
    TEST_FAILED = "test_failed", "test failed"
    NEEDS_CHANGE = "needs_change", "needs change"
    IDLE = "idle", "idle"
    LATE = "late", "late"


class LinkKind(models.TextChoices):
    """How a request was made from an earlier one. The label describes the earlier request."""

    COMBINED = "combined", "combined into"
    SPLIT = "split", "split into"
    RECOVERED = "recovered", "missing files requested in"


class RequestedPriority(models.TextChoices):
    """The priority that an experiment requests.

    The OPG sets the priority class, with the same values.
    """

    LOW = "low", "low"
    NORMAL = "normal", "normal"
    HIGH = "high", "high"
    URGENT = "urgent", "urgent"


#: Priorities that require a reason.
ABOVE_NORMAL = frozenset({RequestedPriority.HIGH, RequestedPriority.URGENT})


class Verb(models.TextChoices):
    """A move between states. Its value is also its address, and its label is on its button."""

    SUBMIT = "submit", "Submit"
    CHECK = "check", "Run checks"
    CHANGE = "change", "Change"
    PASS = "pass", "Pass checks"
    RETURN = "return", "Return to requester"
    APPROVE = "approve", "Approve"
    REQUEST_CHANGES = "request-changes", "Request changes"
    REJECT = "reject", "Reject"
    REOPEN = "reopen", "Reopen"
    QUEUE = "queue", "Add to queue"
    TEST = "test", "Start test"
    FAIL_TEST = "fail-test", "Mark test as failed"
    START = "start", "Start production"
    RETURN_TO_QUEUE = "return-to-queue", "Return to queue"
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
    """Who may make a move. `permissions.PREDICATES` has one function for each."""

    LIAISON = "liaison", "liaison of the experiment"
    APPROVER = "approver", "approver other than the requester"
    SIGNER = "signer", "member of a required approval group, other than the requester"
    DECIDER = "decider", "approver or member of a required approval group, other than the requester"
    OPERATOR = "operator", "approver or shifter"
    OPERATOR_OR_PORTAL = "operator_or_portal", "approver, shifter or the portal"
    LIAISON_OR_APPROVER = "liaison_or_approver", "liaison of the experiment or approver"
    PORTAL = "portal", "the portal"


#: Moves that follow from saving a change. They have no button.
VERBS_WITHOUT_BUTTON = frozenset({Verb.CHANGE})

#: The actor name for moves by the portal.
PORTAL = "opsportal"
