"""Kinds of events about requests, their discussion, holds, and the rules that decide about them."""

from apps.core.domain.event_kinds import (
    TEAM,
    EventKind,
    declare,
    declare_administrative,
    declare_states,
    to,
)
from apps.core.enums import Audience, Group
from apps.production.enums import RequestState, Verb

#: Target of events about holds on more than one request. Events about a stage belong to its
#: request.
_HOLD = "production.hold"
#: Who is notified in which group: outcome, progress, trouble or comments of a request.
_OUTCOME = to(Group.OUTCOME, *TEAM)
_PROGRESS = to(Group.PROGRESS, *TEAM)
_TROUBLE = to(Group.TROUBLE, *TEAM)
_OTHER = to(Group.OTHER, Audience.REQUESTER)
_MENTION = to(Group.OTHER, Audience.REQUESTER, mentioned=Group.TURN)


def kind_of_move(verb: Verb) -> str:
    return f"request.{verb.name.lower()}"


#: Kinds of events that decide on a submitted request: signatures, approval, return and rejection.
DECISIONS = (
    "request.sign",
    kind_of_move(Verb.APPROVE),
    kind_of_move(Verb.REQUEST_CHANGES),
    kind_of_move(Verb.RETURN),
    kind_of_move(Verb.REJECT),
)


declare_states("production.request", dict(RequestState.choices))

# Moves between states. Each verb has one kind of event.
declare(
    EventKind(
        "request.submit",
        "submitted the request",
        "was submitted",
        to(Group.PROGRESS, Audience.LIAISONS),
    ),
    EventKind("request.check", "started the checks", "is being checked"),
    EventKind(
        "request.pass",
        "completed the checks",
        "is awaiting approval",
        to(Group.PROGRESS, Audience.REQUESTER, signers=Group.TURN),
    ),
    EventKind(
        "request.return",
        "returned the request to the requester",
        "was returned by the checks",
        to(Group.TURN, *TEAM),
    ),
    EventKind(
        "request.change",
        "changed the request, which starts checks and signatures over",
        "was changed after submission",
        to(Group.CHANGE, Audience.REQUESTER, Audience.APPROVERS),
    ),
    EventKind("request.approve", "approved the request", "was approved", _OUTCOME),
    EventKind(
        "request.request_changes", "requested changes", "needs changes", to(Group.TURN, *TEAM)
    ),
    EventKind("request.reject", "rejected the request", "was rejected", _OUTCOME),
    EventKind(
        "request.reopen",
        "reopened the request, which starts checks and signatures over",
        "was reopened",
        _OUTCOME,
    ),
    EventKind("request.queue", "added the request to the queue", "was added to the queue"),
    EventKind("request.test", "started the test", "is being tested", _PROGRESS),
    EventKind("request.fail_test", "marked the test as failed", "failed its test", _TROUBLE),
    EventKind("request.start", "started production", "is in production", _PROGRESS),
    EventKind(
        "request.return_to_queue",
        "returned the request to the queue",
        "was returned to the queue",
        _PROGRESS,
    ),
    EventKind("request.hold", "put the request on hold", "was put on hold", _TROUBLE),
    EventKind("request.release", "released the request", "was released", _PROGRESS),
    EventKind(
        "request.complete", "marked the jobs as finished", "has no more jobs to run", _PROGRESS
    ),
    EventKind(
        "request.review", "started the data quality review", "is in data quality review", _PROGRESS
    ),
    EventKind("request.resume", "resumed production", "is back in production", _TROUBLE),
    EventKind("request.done", "marked the request as done", "is done", _OUTCOME),
    EventKind(
        "request.done_partial",
        "marked the request as partially done",
        "is partially done",
        _OUTCOME,
    ),
    EventKind("request.cancel", "cancelled the request", "was cancelled", _OUTCOME),
    EventKind("request.supersede", "superseded the request", "was superseded", _OUTCOME),
)

# Other events of a request.
declare(
    EventKind("request.created", "created the request", "was created"),
    EventKind(
        "request.edited", "edited the request", "was edited", to(Group.CHANGE, Audience.REQUESTER)
    ),
    EventKind("request.cloned", "cloned the request as {clone}", "was cloned", _OTHER),
    EventKind("request.sign", "signed the request", "was signed by one more group", _PROGRESS),
    EventKind("request.withdraw_signature", "withdrew a signature", "lost a signature", _PROGRESS),
    EventKind(
        "request.priority_set", "set the priority", "has a new priority", to(Group.CHANGE, *TEAM)
    ),
    EventKind(
        "request.class_requested",
        "requested the class {requested}",
        "is requested in another class",
        to(Group.TURN, Audience.APPROVERS),
    ),
    EventKind(
        "request.moved", "moved the request", "was moved in the queue", to(Group.CHANGE, *TEAM)
    ),
    EventKind(
        "request.reminder",
        "sent a reminder",
        "is still waiting",
        {Audience.MENTIONED: Group.TURN},
        mentions="people",
    ),
    EventKind(
        "request.dataset_defined",
        "defined the dataset {dataset} in the catalogue",
        "has a new dataset",
    ),
    EventKind(
        "request.stage_accepted",
        "accepted stage {name}",
        "continues without the failed jobs of a stage",
        _TROUBLE,
    ),
    EventKind(
        "request.stage_not_accepted",
        "revoked the acceptance of stage {name}",
        "waits again for the missing jobs of a stage",
        _PROGRESS,
    ),
    EventKind(
        "stage.located",
        "marked the output of {name} as located",
        "has a stage with its output located",
    ),
)

# A request needs attention, or no longer does. The users who can act are mentioned.
_ATTENTION = {**_TROUBLE, Audience.MENTIONED: Group.TURN}
declare(
    EventKind(
        "request.stuck", "marked the request as “stuck”", "is stuck", _ATTENTION, mentions="people"
    ),
    EventKind(
        "request.test_failed",
        "marked the request as “test failed”",
        "has a failed test",
        _ATTENTION,
        mentions="people",
    ),
    EventKind(
        "request.needs_change",
        "marked the request as “needs change”",
        "needs a change",
        _ATTENTION,
        mentions="people",
    ),
    EventKind(
        "request.idle", "marked the request as “idle”", "is idle", _ATTENTION, mentions="people"
    ),
    EventKind(
        "request.late", "marked the request as “late”", "is late", _ATTENTION, mentions="people"
    ),
    EventKind(
        "request.recovered",
        "removed a mark from the request",
        "is back on track",
        {**_PROGRESS, Audience.MENTIONED: Group.PROGRESS},
        mentions="people",
    ),
)

# The discussion of a request.
declare(
    EventKind("request.commented", "commented", "has a new comment", _MENTION),
    EventKind("request.comment_edited", "edited a comment", "has an edited comment", _MENTION),
    EventKind("request.comment_withdrawn", "withdrew a comment", "had a comment withdrawn", _OTHER),
    EventKind("request.comment_resolved", "resolved a thread", "had a thread resolved", _OTHER),
    EventKind("request.comment_reopened", "reopened a thread", "had a thread reopened", _OTHER),
)

# Holds on a stage, an experiment or all production.
declare(
    EventKind(
        "hold.placed",
        "put {what} on hold",
        "has a stage on hold",
        _ATTENTION,
        {_HOLD: "is on hold: no new jobs start"},
        mentions="people",
    ),
    EventKind(
        "hold.lifted",
        "released {what} from hold",
        "has a stage released from hold",
        _PROGRESS,
        {_HOLD: "is no longer on hold"},
    ),
    EventKind(
        "hold.reminder",
        "sent a reminder of a hold",
        "has a stage still on hold",
        {Audience.MENTIONED: Group.TURN},
        predicate_for={_HOLD: "is still on hold"},
        mentions="people",
    ),
)

# Shares, workflow types, templates, approval rules and delegations.
declare(
    EventKind("share.set", "set the share: {old} → {new}", "has a new share of production"),
    EventKind("workflow.saved", "saved version {new} of the workflow type", "has a new version"),
    EventKind("template.saved", "saved {request} as the template", "was saved"),
    EventKind("template.renamed", "renamed the template: {old} → {new}", "was renamed"),
    EventKind("template.deleted", "deleted the template", "was deleted"),
    EventKind("approval_group.saved", "saved the approval group", "was saved"),
    EventKind("approval_group.retired", "retired the approval group", "was retired"),
    EventKind("approval_group.deleted", "deleted the approval group", "was deleted"),
    EventKind("approval_rule.saved", "saved the approval rule", "was saved"),
    EventKind("approval_rule.deleted", "deleted the approval rule", "was deleted"),
    EventKind("delegation.made", "delegated signatures to {new}", "was made"),
    EventKind("delegation.revoked", "revoked the delegation to {old}", "was revoked"),
)

declare_administrative("hold", "share", "workflow", "approval_group", "approval_rule", "delegation")
