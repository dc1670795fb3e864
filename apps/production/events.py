"""What happens to requests, their discussion and holds, and to what decides about them."""

from apps.core.domain.event_kinds import TEAM, EventKind, declare, to
from apps.core.enums import Audience, Group
from apps.production.enums import Verb

#: Target of the events of a hold over more than one request; those of a stage are the request's.
_HOLD = "production.hold"


def kind_of_move(verb: Verb) -> str:
    """Return the kind of the event that a move publishes: `request.approve`."""
    return f"request.{verb.name.lower()}"


# Moves from state to state: each verb has one.
declare(
    EventKind("request.submit", "submitted the request", "was submitted", to(Group.PROGRESS, Audience.LIAISONS)),
    EventKind("request.check", "started the checks", "is being checked"),
    EventKind(
        "request.pass",
        "completed the checks",
        "is awaiting approval",
        to(Group.PROGRESS, Audience.REQUESTER, signers=Group.TURN),
    ),
    EventKind(
        "request.return", "returned the request to the requester", "was returned by the checks", to(Group.TURN, *TEAM)
    ),
    EventKind(
        "request.change",
        "changed the request, which starts checks and signatures over",
        "was changed after submission",
        to(Group.CHANGE, Audience.REQUESTER, Audience.APPROVERS),
    ),
    EventKind("request.approve", "approved the request", "was approved", to(Group.OUTCOME, *TEAM)),
    EventKind("request.request_changes", "requested changes", "needs changes", to(Group.TURN, *TEAM)),
    EventKind("request.reject", "rejected the request", "was rejected", to(Group.OUTCOME, *TEAM)),
    EventKind("request.queue", "added the request to the queue", "was added to the queue"),
    EventKind("request.test", "started the test", "is being tested", to(Group.PROGRESS, *TEAM)),
    EventKind("request.fail_test", "marked the test as failed", "failed its test", to(Group.TROUBLE, *TEAM)),
    EventKind("request.start", "started production", "is in production", to(Group.PROGRESS, *TEAM)),
    EventKind("request.hold", "put the request on hold", "was put on hold", to(Group.TROUBLE, *TEAM)),
    EventKind("request.release", "released the request", "was released", to(Group.PROGRESS, *TEAM)),
    EventKind("request.complete", "marked the jobs as finished", "has no more jobs to run", to(Group.PROGRESS, *TEAM)),
    EventKind(
        "request.review",
        "started the data quality review",
        "is in data quality review",
        to(Group.PROGRESS, *TEAM),
    ),
    EventKind("request.resume", "resumed production", "is back in production", to(Group.TROUBLE, *TEAM)),
    EventKind("request.done", "marked the request as done", "is done", to(Group.OUTCOME, *TEAM)),
    EventKind(
        "request.done_partial", "marked the request as partially done", "is partially done", to(Group.OUTCOME, *TEAM)
    ),
    EventKind("request.cancel", "cancelled the request", "was cancelled", to(Group.OUTCOME, *TEAM)),
    EventKind("request.supersede", "superseded the request", "was superseded", to(Group.OUTCOME, *TEAM)),
)

# What else happens to a request.
declare(
    EventKind("request.created", "created the request", "was created"),
    EventKind("request.edited", "edited the request", "was edited", to(Group.CHANGE, Audience.REQUESTER)),
    EventKind("request.cloned", "cloned the request as {clone}", "was cloned", to(Group.OTHER, Audience.REQUESTER)),
    EventKind("request.sign", "signed the request", "was signed by one more group", to(Group.PROGRESS, *TEAM)),
    EventKind("request.withdraw_signature", "withdrew a signature", "lost a signature", to(Group.PROGRESS, *TEAM)),
    EventKind("request.priority_set", "set the priority", "has a new priority", to(Group.CHANGE, *TEAM)),
    EventKind("request.moved", "moved the request", "was moved in the queue", to(Group.CHANGE, *TEAM)),
    EventKind(
        "request.reminder", "sent a reminder", "is still waiting", {Audience.MENTIONED: Group.TURN}, mentions="people"
    ),
    EventKind("request.dataset_defined", "defined the dataset {dataset} in the catalogue", "has a new dataset"),
    EventKind(
        "request.stage_accepted",
        "accepted stage {name}",
        "continues without the failed jobs of a stage",
        to(Group.TROUBLE, *TEAM),
    ),
    EventKind(
        "request.stage_not_accepted",
        "revoked the acceptance of stage {name}",
        "waits again for the missing jobs of a stage",
        to(Group.PROGRESS, *TEAM),
    ),
    EventKind("stage.located", "marked the output of {name} as located", "has a stage with its output located"),
)

# Its discussion.
declare(
    EventKind(
        "request.commented",
        "commented",
        "has a new comment",
        to(Group.OTHER, Audience.REQUESTER, mentioned=Group.TURN),
    ),
    EventKind(
        "request.comment_edited",
        "edited a comment",
        "has an edited comment",
        to(Group.OTHER, Audience.REQUESTER, mentioned=Group.TURN),
    ),
    EventKind(
        "request.comment_withdrawn",
        "withdrew a comment",
        "had a comment withdrawn",
        to(Group.OTHER, Audience.REQUESTER),
    ),
    EventKind(
        "request.comment_resolved", "resolved a thread", "had a thread resolved", to(Group.OTHER, Audience.REQUESTER)
    ),
    EventKind(
        "request.comment_reopened", "reopened a thread", "had a thread reopened", to(Group.OTHER, Audience.REQUESTER)
    ),
)

# Holds of a stage, an experiment, or all production.
declare(
    EventKind(
        "hold.placed",
        "put {what} on hold",
        "has a stage on hold",
        to(Group.TROUBLE, *TEAM),
        {_HOLD: "is on hold: no new jobs start"},
    ),
    EventKind(
        "hold.lifted",
        "released {what} from hold",
        "has a stage released from hold",
        to(Group.PROGRESS, *TEAM),
        {_HOLD: "is no longer on hold"},
    ),
    EventKind(
        "hold.reminder",
        "sent a reminder of a hold",
        "has a stage still on hold",
        {Audience.MENTIONED: Group.TURN},
        words_for={_HOLD: "is still on hold"},
        mentions="people",
    ),
)

# What decides about requests.
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
