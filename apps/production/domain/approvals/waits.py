"""What a request can wait for: who is responsible, and what inbox and home page say of it.

Inbox, counts, reminders, the status of a request and its events all read this one table.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from apps.accounts.enums import Role
from apps.production.enums import AttentionKind, RequestState, Verb

_LIAISONS = (Role.LIAISON,)
_OPG = (Role.APPROVER, Role.SHIFTER)


@dataclass(frozen=True)
class WaitKind:
    """What all requests that wait for the same thing have in common.

    Users with one of `roles` are responsible for the next step; there are none where the required
    groups sign. `heading` stands above these requests in the inbox, `count_label` follows their
    number on the home page. `button_target` is a form or a section of the request page, empty for
    the page itself. `event` marks a request that needs attention.
    """

    roles: tuple[Role, ...]
    next_step: str
    heading: str
    count_label: str
    button_label: str = "Open"
    button_target: str = ""
    event: str = ""


#: By the state or the kind of attention for which a request waits, in the order of the inbox.
#: Drafts belong to their authors.
WAIT_KINDS: Mapping[RequestState | AttentionKind, WaitKind] = {
    RequestState.AWAITING_APPROVAL: WaitKind(
        roles=(),
        next_step="Approve it, request changes or reject it",
        heading="To sign",
        count_label="to sign",
    ),
    AttentionKind.STUCK: WaitKind(
        roles=_OPG,
        next_step="Retry its failed jobs or continue without them",
        heading="Stuck",
        count_label="stuck",
        button_label="Retry or continue",
        button_target="#submissions",
        event="request.stuck",
    ),
    AttentionKind.TEST_FAILED: WaitKind(
        roles=_OPG,
        next_step="Fix the cause and start it again, or cancel it",
        heading="Test failed",
        count_label="with a failed test",
        button_label="Start test…",
        button_target=f"?do={Verb.TEST}#do",
        event="request.test_failed",
    ),
    RequestState.CHANGES_REQUESTED: WaitKind(
        roles=_LIAISONS,
        next_step="Make the changes and submit again",
        heading="To change",
        count_label="to change",
    ),
    AttentionKind.NEEDS_CHANGE: WaitKind(
        roles=_LIAISONS,
        next_step="Change it, or ask the OPG to start it as it is",
        heading="Needs change",
        count_label="needing a change",
        event="request.needs_change",
    ),
    RequestState.DATA_QUALITY: WaitKind(
        roles=_OPG,
        next_step="Review its data quality and close it",
        heading="To review",
        count_label="to review",
        button_label="Review data quality",
        button_target="#quality",
    ),
    AttentionKind.IDLE: WaitKind(
        roles=_OPG,
        next_step="Start its jobs, or put it on hold with the reason",
        heading="Idle",
        count_label="idle",
        button_label="Open submissions",
        button_target="#submissions",
        event="request.idle",
    ),
    AttentionKind.LATE: WaitKind(
        roles=(Role.APPROVER, Role.LIAISON),
        next_step="An approver can raise its priority, a liaison postpone its deadline",
        heading="Late",
        count_label="late",
        event="request.late",
    ),
    RequestState.ON_HOLD: WaitKind(
        roles=_OPG,
        next_step="Release or cancel it",
        heading="On hold",
        count_label="on hold",
        button_label="Release…",
        button_target=f"?do={Verb.RELEASE}#do",
    ),
    RequestState.DRAFT: WaitKind(
        roles=_LIAISONS,
        next_step="Finish the draft and submit it",
        heading="Drafts",
        count_label="in draft",
    ),
}
_POSITIONS = {wait: position for position, wait in enumerate(WAIT_KINDS)}


def urgency_key(wait: RequestState | AttentionKind) -> tuple[bool, int]:
    """Return the key that sorts the waits of one request, most urgent first.

    Lateness comes last: what else the request waits for is often the reason.
    """
    return wait == AttentionKind.LATE, _POSITIONS[wait]
