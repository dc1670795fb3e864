"""Recipients of an event: the users whom it concerns, each with the group of events.

Users and experiments are primary keys throughout.
"""

from collections.abc import Iterable, Mapping

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
    audiences = _audiences_by_user(_users_by_audience(event, request))
    muted = Follow.objects.filter(request=request, level=Level.MUTED)
    for user_pk in muted.values_list("user_id", flat=True):
        audiences.pop(user_pk, None)
    return _groups(event, audiences)


def _audiences_by_user(
    users_by_audience: Mapping[Audience, Iterable[int]],
) -> dict[int, set[Audience]]:
    """Return the audiences that each user belongs to."""
    audiences: dict[int, set[Audience]] = {}
    for audience, user_pks in users_by_audience.items():
        for user_pk in user_pks:
            audiences.setdefault(user_pk, set()).add(audience)
    return audiences


def _groups(event: Event, audiences: Mapping[int, set[Audience]]) -> dict[int, Group]:
    """Return the group of each user to notify, given the audiences that each belongs to.

    A user gets the first group that applies. The user who caused the event is not notified.
    """
    actors = set(User.objects.filter(username=event.actor).values_list("pk", flat=True))
    group_by_audience = kind_of(event).notifies

    first_groups: dict[int, Group] = {}
    for user_pk, audiences_of_user in audiences.items():
        groups = []
        for audience in audiences_of_user:
            if audience in group_by_audience:
                groups.append(group_by_audience[audience])
        if groups and user_pk not in actors:
            first_groups[user_pk] = min(groups, key=list(Group).index)
    return first_groups


def concerned_by_hold(event: Event, hold: Hold) -> tuple[dict[int, Group], set[int]]:
    """Return the users whom a hold concerns with their group, and the experiments of its requests.

    Each user counts once for all requests that the user has not muted. A constant number of
    queries.
    """
    requests = requests_under(hold)
    rows = list(requests.values_list("pk", "experiment_id", "created_by_id", "submitted_by_id"))
    liaisons = _liaisons_by_experiment()
    watching: dict[int, set[int]] = {}
    muted: dict[int, set[int]] = {}
    follows = Follow.objects.filter(request__in=requests)
    for level, request_pk, user_pk in follows.values_list("level", "request_id", "user_id"):
        users_by_request = watching if level == Level.WATCHING else muted
        users_by_request.setdefault(request_pk, set()).add(user_pk)

    experiment_pks = set()
    users_by_audience: dict[Audience, set[int]] = {
        Audience.REQUESTER: set(),
        Audience.LIAISONS: set(),
        Audience.WATCHERS: set(),
    }
    for request_pk, experiment_pk, *requesters in rows:
        experiment_pks.add(experiment_pk)
        muted_here = muted.get(request_pk, set())
        liaisons_here = liaisons.get(experiment_pk, set()) | liaisons.get(None, set())
        users_by_audience[Audience.REQUESTER] |= set(requesters) - muted_here - {None}
        users_by_audience[Audience.LIAISONS] |= liaisons_here - muted_here
        users_by_audience[Audience.WATCHERS] |= watching.get(request_pk, set()) - muted_here
    users_by_audience[Audience.MENTIONED] = _mentioned_users(event)
    return _groups(event, _audiences_by_user(users_by_audience)), experiment_pks


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

    return _groups(event, _audiences_by_user(users_by_audience))


def concerned_by_message(event: Event) -> dict[int, Group]:
    """Return the users to whom a message was sent, or who watch a line, with their group."""
    return _groups(event, _audiences_by_user({Audience.MENTIONED: _mentioned_users(event)}))


def concerned_by_proposal(
    event: Event, proposal: KnownErrorChange | ExperimentPack
) -> dict[int, Group]:
    """Return who decides on a proposed known error or pack, and its author, with their group."""
    authors = User.objects.filter(username=proposal.by).values_list("pk", flat=True)
    users_by_audience = {
        Audience.APPROVERS: _editors_of_catalogue(),
        Audience.REQUESTER: set(authors),
    }
    return _groups(event, _audiences_by_user(users_by_audience))


def concerned_by_catalogue(event: Event) -> dict[int, Group]:
    """Return who may change known errors, with their group."""
    return _groups(event, _audiences_by_user({Audience.APPROVERS: _editors_of_catalogue()}))


def concerned_by_rule(event: Event, rule: RecoveryRule) -> dict[int, Group]:
    """Return who may let a recovery rule act, with their group."""
    is_of_rule = Q(experiment=None) | Q(experiment=rule.experiment_id)
    approvers = Membership.objects.filter(is_of_rule, role__in=[Role.APPROVER, Role.ADMIN])
    user_pks = set(approvers.values_list("user_id", flat=True))
    return _groups(event, _audiences_by_user({Audience.APPROVERS: user_pks}))


def _editors_of_catalogue() -> set[int]:
    """Return the approvers and admins of the OPG, who decide on changes of known errors."""
    editors = Membership.objects.filter(role__in=[Role.APPROVER, Role.ADMIN], experiment=None)
    return set(editors.values_list("user_id", flat=True))


def _liaisons_of_all(experiment_pks: set[int | None]) -> set[int]:
    """Return the users who are liaisons of every one of these experiments."""
    if not experiment_pks or None in experiment_pks:
        return set()
    liaisons = _liaisons_by_experiment()
    return set.intersection(
        *(liaisons.get(experiment_pk, set()) for experiment_pk in experiment_pks)
    )


def _liaisons_by_experiment() -> dict[int | None, set[int]]:
    """Return the liaisons of each experiment; liaisons of all experiments are under None."""
    liaisons: dict[int | None, set[int]] = {}
    memberships = Membership.objects.filter(role=Role.LIAISON)
    for experiment_pk, user_pk in memberships.values_list("experiment_id", "user_id"):
        liaisons.setdefault(experiment_pk, set()).add(user_pk)
    return liaisons


def _users_by_audience(event: Event, request: Request) -> dict[Audience, set[int]]:
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
        Audience.MENTIONED: _mentioned_users(event),
    }


def _mentioned_users(event: Event) -> set[int]:
    """Return the users whom an event names: mentioned or reminded."""
    data = event.data if isinstance(event.data, dict) else {}
    usernames = data.get(kind_of(event).mentions)
    if not usernames or not isinstance(usernames, list):
        return set()
    users = User.objects.filter(username__in=[str(username) for username in usernames])
    return set(users.values_list("pk", flat=True))


def _signers(event: Event, request: Request) -> set[int]:
    """Return the users who can give a missing signature, including deputies."""
    missing = [slot.group for slot in slots_of(request) if slot.signature is None]
    user_pks: set[int] = set()
    for rights in possible_signers(missing, approval_facts(request), event.at).values():
        user_pks.update(right.user.pk for right in rights)
    return user_pks
