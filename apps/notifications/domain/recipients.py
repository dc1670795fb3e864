"""Recipients of an event: the users whom it concerns, each with the group of events."""

from collections.abc import Mapping

from django.db.models import Q

from apps.accounts.enums import Role
from apps.accounts.models import Membership, User
from apps.core.domain.event_kinds import kind_of
from apps.core.enums import Audience, Group
from apps.core.models import Event
from apps.diagnosis.domain.groups.triage import experiments_in
from apps.diagnosis.models import ExperimentPack, FailureGroup, KnownErrorChange
from apps.notifications.enums import Level
from apps.notifications.models import Follow
from apps.production.domain.approvals.requirements import approval_facts, possible_signers, slots_of
from apps.production.domain.holds import requests_under
from apps.production.models import Hold, Request
from apps.progress.models import WeeklyReport
from apps.recovery.models import RecoveryRule
from apps.search.models import LineTemplate
from apps.statusboard.models import Incident


def concerned_by(event: Event, request: Request) -> dict[int, Group]:
    """Return the users whom an event concerns, with their group of events.

    The actor and users who muted the request are left out.
    """
    reasons: dict[int, set[Audience]] = {}
    for reason, people in _candidates(event, request).items():
        for pk in people:
            reasons.setdefault(pk, set()).add(reason)
    for pk in Follow.objects.filter(request=request, level=Level.MUTED).values_list(
        "user_id", flat=True
    ):
        reasons.pop(pk, None)
    return _groups(event, reasons)


def _groups(event: Event, reasons: Mapping[int, set[Audience]]) -> dict[int, Group]:
    """Return the group of each user to notify: the first that applies.

    Who caused the event is not notified.
    """
    actors = set(User.objects.filter(username=event.actor).values_list("pk", flat=True))
    group_by_audience = kind_of(event).notifies

    first_groups: dict[int, Group] = {}
    for user, audiences in reasons.items():
        groups = [
            group_by_audience[audience] for audience in audiences if audience in group_by_audience
        ]
        if groups and user not in actors:
            first_groups[user] = min(groups, key=list(Group).index)
    return first_groups


def concerned_by_hold(event: Event, hold: Hold) -> tuple[dict[int, Group], set[int]]:
    """Return the users whom a hold concerns with their group, and the experiments of its requests.

    Each user counts once for all requests that the user has not muted. A constant number of
    queries.
    """
    under = requests_under(hold)
    rows = list(under.values_list("pk", "experiment_id", "created_by_id", "submitted_by_id"))
    liaisons = _liaisons_by_experiment()
    follows: dict[str, dict[int, set[int]]] = {level: {} for level in Level.values}
    for level, pk, user in Follow.objects.filter(request__in=under).values_list(
        "level", "request_id", "user_id"
    ):
        follows[level].setdefault(pk, set()).add(user)
    reasons: dict[int, set[Audience]] = {}
    for pk, experiment, *requesters in rows:
        people = {
            Audience.REQUESTER: {user for user in requesters if user is not None},
            Audience.LIAISONS: liaisons.get(experiment, set()) | liaisons.get(None, set()),
            Audience.WATCHERS: follows[Level.WATCHING].get(pk, set()),
        }
        for reason, users in people.items():
            for user in users - follows[Level.MUTED].get(pk, set()):
                reasons.setdefault(user, set()).add(reason)
    for user in _named(event):
        reasons.setdefault(user, set()).add(Audience.MENTIONED)
    return _groups(event, reasons), {experiment for _, experiment, *_ in rows}


def concerned_by_failures(
    event: Event, target: FailureGroup | Incident | LineTemplate | WeeklyReport
) -> dict[int, Group]:
    """Return the users concerned by an event about failures, with their group of events.

    A failure group concerns the liaisons who may triage it: of all experiments with jobs in
    it. A weekly report and a new line of logs concern the liaisons of their experiment.
    """
    operators = Q(role__in=[Role.APPROVER, Role.SHIFTER], experiment=None)
    users_by_audience = {
        Audience.OPERATORS: set(
            Membership.objects.filter(operators).values_list("user_id", flat=True)
        )
    }
    if isinstance(target, FailureGroup):
        owner = User.objects.filter(username=target.owner)
        users_by_audience[Audience.OWNER] = set(owner.values_list("pk", flat=True))
        users_by_audience[Audience.LIAISONS] = _liaisons_of_all(experiments_in(target))
    if isinstance(target, WeeklyReport | LineTemplate) and target.experiment_id is not None:
        users_by_audience[Audience.LIAISONS] = _liaisons_of_all({target.experiment_id})

    reasons: dict[int, set[Audience]] = {}
    for audience, users in users_by_audience.items():
        for user in users:
            reasons.setdefault(user, set()).add(audience)
    return _groups(event, reasons)


def concerned_by_message(event: Event) -> dict[int, Group]:
    """Return the users to whom a message was sent, or who watch a line, with their group."""
    return _groups(event, {user: {Audience.MENTIONED} for user in _named(event)})


def concerned_by_proposal(
    event: Event, proposal: KnownErrorChange | ExperimentPack
) -> dict[int, Group]:
    """Return who decides on a proposed known error or pack, and its author, with their group."""
    reasons = _editors_of_catalogue()
    for pk in User.objects.filter(username=proposal.by).values_list("pk", flat=True):
        reasons.setdefault(pk, set()).add(Audience.REQUESTER)
    return _groups(event, reasons)


def concerned_by_catalogue(event: Event) -> dict[int, Group]:
    """Return who may change known errors, with their group."""
    return _groups(event, _editors_of_catalogue())


def concerned_by_rule(event: Event, rule: RecoveryRule) -> dict[int, Group]:
    """Return who may let a recovery rule act, with their group."""
    is_of_rule = Q(experiment=None) | Q(experiment=rule.experiment_id)
    approvers = Membership.objects.filter(is_of_rule, role__in=[Role.APPROVER, Role.ADMIN])
    users = approvers.values_list("user_id", flat=True)
    return _groups(event, {pk: {Audience.APPROVERS} for pk in users})


def _editors_of_catalogue() -> dict[int, set[Audience]]:
    """Return the approvers and admins of the OPG as the approvers of a change."""
    editors = Membership.objects.filter(role__in=[Role.APPROVER, Role.ADMIN], experiment=None)
    return {pk: {Audience.APPROVERS} for pk in editors.values_list("user_id", flat=True)}


def _liaisons_of_all(experiments: set[int | None]) -> set[int]:
    """Return the users who are liaisons of every one of these experiments."""
    if not experiments or None in experiments:
        return set()
    liaisons = _liaisons_by_experiment()
    return set.intersection(*(liaisons.get(experiment, set()) for experiment in experiments))


def _liaisons_by_experiment() -> dict[int | None, set[int]]:
    """Return the liaisons of each experiment; liaisons of all experiments are under None."""
    liaisons: dict[int | None, set[int]] = {}
    memberships = Membership.objects.filter(role=Role.LIAISON)
    for experiment, user in memberships.values_list("experiment_id", "user_id"):
        liaisons.setdefault(experiment, set()).add(user)
    return liaisons


def _candidates(event: Event, request: Request) -> dict[Audience, set[int]]:
    """Return the users of each audience of a request, whether the event notifies it or not."""
    requester = {pk for pk in (request.created_by_id, request.submitted_by_id) if pk is not None}
    here = Q(experiment=request.experiment_id) | Q(experiment=None)
    members: dict[str, set[int]] = {}
    for role, pk in Membership.objects.filter(here).values_list("role", "user_id"):
        members.setdefault(role, set()).add(pk)
    watching = Follow.objects.filter(request=request, level=Level.WATCHING)
    signers: set[int] = set()
    if Audience.SIGNERS in kind_of(event).notifies:
        signers = _signers(event, request)
    return {
        Audience.REQUESTER: requester,
        Audience.LIAISONS: members.get(Role.LIAISON, set()),
        Audience.APPROVERS: members.get(Role.APPROVER, set()) - requester,
        Audience.SIGNERS: signers,
        Audience.WATCHERS: set(watching.values_list("user_id", flat=True)),
        Audience.MENTIONED: _named(event),
    }


def _named(event: Event) -> set[int]:
    """Return the users whom an event names: mentioned or reminded."""
    data = event.data if isinstance(event.data, dict) else {}
    named = data.get(kind_of(event).mentions)
    if not named or not isinstance(named, list):
        return set()
    users = User.objects.filter(username__in=[str(name) for name in named])
    return set(users.values_list("pk", flat=True))


def _signers(event: Event, request: Request) -> set[int]:
    """Return the users who can give a missing signature, including deputies."""
    missing = [slot.group for slot in slots_of(request) if slot.signature is None]
    users: set[int] = set()
    for rights in possible_signers(missing, approval_facts(request), event.at).values():
        users.update(right.user.pk for right in rights)
    return users
