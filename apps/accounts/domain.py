"""Users, experiments, roles, tokens and settings, and login by single sign-on."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qsl, urlencode
from zoneinfo import available_timezones

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from apps.accounts.enums import Role, SignIn, TokenScope
from apps.accounts.models import (
    UNKNOWN_ZONE,
    ApiToken,
    Experiment,
    Membership,
    Principal,
    SavedView,
    User,
)
from apps.accounts.permissions import scope_of
from apps.core.domain.background import enqueue
from apps.core.domain.events import events_of, publish
from apps.core.errors import InvalidFields, NotAllowed

logger = logging.getLogger(__name__)

#: Minimum time between two mails with a link to set a new password.
RESET_PAUSE = timedelta(minutes=5)
#: A visit ends when the home page was not opened for this long.
VISIT_PAUSE = timedelta(minutes=30)
#: The time of a visit is stored at most this often.
VISIT_STEP = timedelta(minutes=1)
#: The actor of changes caused by a login through a provider or proxy.
SIGN_ON = "single sign-on"


def note_visit(*, user: User, at: datetime) -> None:
    """Note that a user opens the home page; after a pause, this starts a new visit."""
    if user.visited_at and at - user.visited_at < VISIT_STEP:
        return
    if user.visited_at and at - user.visited_at >= VISIT_PAUSE:
        user.previous_visit_at = user.visited_at
    user.visited_at = at
    user.save(update_fields=["visited_at", "previous_visit_at"])


@transaction.atomic
def ensure_experiment(*, key: str, name: str, by: Principal, at: datetime) -> Experiment:
    """Return the experiment with this case-insensitive key, creating it if missing."""
    experiment, created = Experiment.objects.get_or_create(
        key__iexact=key, defaults={"key": key, "name": name}
    )
    if created:
        publish(kind="experiment.created", target=experiment, by=by, at=at)
    return experiment


@transaction.atomic
def save_experiment(*, experiment: Experiment, by: Principal, at: datetime) -> None:
    """Store a new or changed experiment.

    Raises `InvalidFields` if its key is taken.
    """
    created = experiment.pk is None
    try:
        with transaction.atomic():
            experiment.save()
    except IntegrityError as error:
        raise InvalidFields({"key": ["An experiment has this key already."]}) from error
    publish(
        kind="experiment.created" if created else "experiment.changed",
        target=experiment,
        by=by,
        at=at,
    )


@transaction.atomic
def ensure_user(
    *, username: str, password_hash: str, by: Principal, at: datetime, **fields: Any
) -> User:
    """Return the user of this name, creating it with this password hash and `fields` if missing."""
    user, created = User.objects.get_or_create(
        username=username, defaults={"password": password_hash, **fields}
    )
    if created:
        publish(kind="user.created", target=user, by=by, at=at)
    return user


def ways_to_sign_in() -> list[SignIn]:
    """Return how a new user can sign in with the settings of the portal, most convenient first."""
    ways = [SignIn.PASSWORD]
    if settings.OIDC_ISSUER or settings.REMOTE_USER_HEADER:
        ways.insert(0, SignIn.SINGLE_SIGN_ON)
    if settings.EMAIL_HOST:
        ways.insert(0, SignIn.LINK)
    return ways


@transaction.atomic
def add_user(
    *,
    username: str,
    sign_in: SignIn,
    by: Principal,
    at: datetime,
    password: str = "",
    role: Role | None = None,
    experiments: Iterable[Experiment | None] = (),
    **fields: Any,
) -> User:
    """Add a user with a role for each of `experiments`, where None stands for all.

    With `SignIn.LINK`, the user is mailed a link to choose a password. Raises `InvalidFields` if
    the name is taken.
    """
    # A mailed link replaces the random password; without a password, only single sign-on works.
    first_passwords = {
        SignIn.LINK: token_urlsafe(),
        SignIn.SINGLE_SIGN_ON: None,
        SignIn.PASSWORD: password,
    }
    if User.objects.filter(username__iexact=username).exists():
        raise InvalidFields({"username": [f"There is a user {username} already."]})
    user = ensure_user(
        username=username,
        password_hash=make_password(first_passwords[sign_in]),
        by=by,
        at=at,
        **fields,
    )
    if role:
        for experiment in experiments:
            grant_role(user=user, role=role, experiment=experiment, by=by, at=at)
    if sign_in == SignIn.LINK:
        request_password_reset(user=user, by=by, at=at)
    return user


@transaction.atomic
def deactivate_user(*, user: User, by: User, at: datetime, reason: str = "") -> None:
    """End all access of a user and revoke the user's tokens; what the user did stays.

    Raises `NotAllowed` for oneself and for the last active superuser.
    """
    _check_may_change(by)
    user = User.objects.select_for_update(no_key=True).get(pk=user.pk)
    if not user.is_active:
        return
    if user == by:
        raise NotAllowed("You cannot deactivate yourself. Ask another admin.")
    others = User.objects.filter(is_superuser=True, is_active=True).exclude(pk=user.pk)
    if user.is_superuser and not others.exists():
        raise NotAllowed("This is the last active admin: add another one first.")
    user.is_active = False
    user.save(update_fields=["is_active"])
    publish(kind="user.deactivated", target=user, by=by, at=at, reason=reason)
    for token in ApiToken.objects.filter(user=user):
        revoke_token(user=user, token_key=token.token_key, by=by, at=at)


@transaction.atomic
def reactivate_user(*, user: User, by: User, at: datetime, reason: str = "") -> None:
    """Give a user access again, with the roles that are still recorded."""
    _check_may_change(by)
    if User.objects.filter(pk=user.pk, is_active=False).update(is_active=True):
        publish(kind="user.reactivated", target=user, by=by, at=at, reason=reason)


def _check_may_change(by: User) -> None:
    if not by.has_perm("accounts.change_user"):
        raise NotAllowed("Only admins can change users.")


@transaction.atomic
def grant_role(
    *, user: User, role: Role, experiment: Experiment | None, by: Principal, at: datetime
) -> Membership:
    """Grant a role for one experiment or for all.

    An admin of all experiments gets access to `/admin/`.
    """
    membership, created = Membership.objects.get_or_create(
        user=user, role=role, experiment=experiment
    )
    if created:
        where = {"experiment": str(experiment or "all")}
        publish(kind="membership.granted", target=user, by=by, at=at, new=role, data=where)
        _update_staff(membership)
    return membership


@transaction.atomic
def revoke_role(*, membership: Membership, by: Principal, at: datetime) -> None:
    where = {"experiment": str(membership.experiment or "all")}
    publish(
        kind="membership.revoked",
        target=membership.user,
        by=by,
        at=at,
        old=membership.role,
        data=where,
    )
    membership.delete()
    _update_staff(membership)


def _update_staff(membership: Membership) -> None:
    """Update access to `/admin/` if the role is admin of all experiments."""
    user = membership.user
    user.__dict__.pop("_scope", None)
    if membership.role != Role.ADMIN or membership.experiment_id is not None:
        return
    is_admin = user.memberships.filter(role=Role.ADMIN, experiment=None).exists()
    User.objects.filter(pk=user.pk).update(is_staff=is_admin, is_superuser=is_admin)
    user.is_staff = user.is_superuser = is_admin


@transaction.atomic
def create_token(
    *,
    user: User,
    name: str,
    days: int,
    by: Principal,
    at: datetime,
    scope: TokenScope = TokenScope.WRITE,
    calls_per_hour: int | None = None,
) -> str:
    """Create and return an API token, of which only a hash is stored.

    Without `calls_per_hour`, it has the portal's limit.

    Raises `InvalidFields` if the user has too many.
    """
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    limit = settings.REST_KNOX["TOKEN_LIMIT_PER_USER"]
    if ApiToken.objects.filter(user=user, expiry__gt=at).count() >= limit:
        raise InvalidFields(
            {"days": [f"You already have {limit} tokens. Revoke one you no longer use."]}
        )
    _, token = ApiToken.objects.create(
        user,
        expiry=timedelta(days=days),
        name=name,
        scope=scope,
        calls_per_hour=calls_per_hour,
    )
    publish(
        kind="token.created",
        target=user,
        by=by,
        at=at,
        data={"name": name, "scope": scope, "days": days, "calls_per_hour": calls_per_hour},
    )
    return str(token)


@transaction.atomic
def revoke_token(*, user: User, token_key: str, by: Principal, at: datetime) -> bool:
    """Revoke a token; return whether the user had it."""
    deleted, _ = ApiToken.objects.filter(user=user, token_key=token_key).delete()
    if deleted:
        publish(kind="token.revoked", target=user, by=by, at=at)
    return bool(deleted)


@transaction.atomic
def forget_expired(*, at: datetime) -> None:
    """Delete expired sessions and tokens."""
    Session.objects.filter(expire_date__lt=at).delete()
    ApiToken.objects.filter(expiry__lt=at).delete()


@transaction.atomic
def choose_time_zone(*, user: User, time_zone: str) -> None:
    """Set the user's time zone, or the portal's default if empty. Raises `InvalidFields`."""
    if time_zone and time_zone not in available_timezones():
        raise InvalidFields({"time_zone": [UNKNOWN_ZONE.format(time_zone)]})
    User.objects.filter(pk=user.pk).update(time_zone=time_zone)
    user.time_zone = time_zone


@transaction.atomic
def publish_logins(*, user: User, by: Principal, at: datetime) -> None:
    """Publish the user's cluster logins after a change in the admin."""
    logins = sorted(map(str, user.cluster_logins.all()))
    publish(kind="account.logins_changed", target=user, by=by, at=at, data={"logins": logins})


@transaction.atomic
def set_password(*, user: User, password: str, by: Principal, at: datetime) -> None:
    """Store the hash of a new password. Links mailed before become invalid."""
    user.set_password(password)
    user.save(update_fields=["password"])
    publish(kind="account.password_changed", target=user, by=by, at=at)


@transaction.atomic
def request_password_reset(*, user: User, at: datetime, by: Principal = "login page") -> bool:
    """Mail a link to set a new password; return False if one was mailed within `RESET_PAUSE`."""
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    if (
        events_of(user)
        .filter(kind="account.password_reset_requested", at__gt=at - RESET_PAUSE)
        .exists()
    ):
        return False
    publish(kind="account.password_reset_requested", target=user, by=by, at=at)
    enqueue("accounts.mail_password_link", user_id=user.pk)
    return True


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A user as described by a provider or proxy.

    `subject` never changes at a provider; a proxy has none.
    """

    username: str
    subject: str = ""
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    groups: frozenset[str] = frozenset()


@transaction.atomic
def sign_on(*, identity: Identity, at: datetime) -> User:
    """Return the user of this identity, updating name, address and roles.

    The user is looked up by subject, else by name and then linked to the subject permanently.
    Raises `NotAllowed` if there is no such account, if it may not be claimed by name, or if the
    name is invalid.
    """
    user = None
    if identity.subject:
        user = User.objects.filter(sign_on_subject=identity.subject).first()
    user = user or _user_named(identity, at)
    if not user.is_active:
        raise NotAllowed(f"The account {user.username} is not active.")
    known = {
        "first_name": identity.first_name,
        "last_name": identity.last_name,
        "email": identity.email,
    }
    changes = {}
    for name, value in known.items():
        if value and value != getattr(user, name):
            changes[name] = value
    if changes:
        User.objects.filter(pk=user.pk).update(**changes)
        user.refresh_from_db(fields=changes)
    if settings.SSO_ROLES:
        _follow_groups(user, identity.groups, at)
    return user


def _user_named(identity: Identity, at: datetime) -> User:
    """Return the user of this name, linked to the subject.

    Creates the user if the settings allow that.
    """
    try:
        User._meta.get_field("username").clean(identity.username, None)
    except ValidationError as error:
        raise NotAllowed(f"{identity.username[:150]!r} cannot be a user name here.") from error
    users = User.objects.select_for_update(no_key=True)
    if settings.SSO_CREATE_USERS:
        # If two first logins are simultaneous, the second one gets the account that the first
        # created.
        unusable = {"password": make_password(None)}
        user, created = users.get_or_create(username=identity.username, defaults=unusable)
        if created:
            publish(kind="user.created", target=user, by=SIGN_ON, at=at)
    else:
        try:
            user = users.get(username=identity.username)
        except User.DoesNotExist as error:
            raise NotAllowed(f"There is no account {identity.username!r} here.") from error
    if identity.subject and user.sign_on_subject == identity.subject:
        # Another login has linked the account since the look-up by subject.
        return user
    if identity.subject and user.sign_on_subject:
        raise NotAllowed(f"The account {user.username} belongs to another identity.")
    if not _may_be_taken_by_name(user, identity):
        raise NotAllowed(
            f"The account {user.username} is not linked to single sign-on. Ask an admin to link it."
        )
    if identity.subject:
        user.sign_on_subject = identity.subject
        user.link_by_name = False
        user.save(update_fields=["sign_on_subject", "link_by_name"])
        publish(kind="account.linked", target=user, by=SIGN_ON, at=at)
    return user


def _may_be_taken_by_name(user: User, identity: Identity) -> bool:
    """Return whether the first identity of this name may claim the account.

    An account with a password may belong to someone else, so an admin has to allow the link. Staff
    accounts cannot be claimed by name, except for admins without a password behind a proxy, which
    identifies users only by name.
    """
    has_password = user.has_usable_password()
    if user.is_staff or user.is_superuser:
        return not identity.subject and not has_password
    return user.link_by_name or not has_password


def _follow_groups(user: User, groups: frozenset[str], at: datetime) -> None:
    """Grant and revoke the roles in `SSO_ROLES` by the user's groups; other roles are kept."""
    roles_by_group: dict[str, list[str]] = settings.SSO_ROLES
    # A role is written as in the setting: `approver`, or `liaison:NOVA` for one experiment.
    all_roles: set[str] = set()
    granted_roles: set[str] = set()
    for group, roles in roles_by_group.items():
        all_roles.update(roles)
        if group in groups:
            granted_roles.update(roles)
    memberships: dict[str, Membership] = {}
    for membership in user.memberships.select_related("experiment"):
        role = str(membership.role)
        if membership.experiment:
            role = f"{role}:{membership.experiment.key}"
        memberships[role] = membership

    experiments = {experiment.key: experiment for experiment in Experiment.objects.all()}
    for role in sorted(all_roles):
        name, _, key = role.partition(":")
        if key and key not in experiments:
            logger.warning("SSO_ROLES names the experiment %s, which does not exist", key)
        elif role in granted_roles and role not in memberships:
            grant_role(
                user=user, role=Role(name), experiment=experiments.get(key), by=SIGN_ON, at=at
            )
        elif role not in granted_roles and role in memberships:
            revoke_role(membership=memberships[role], by=SIGN_ON, at=at)


#: Maximum views that a user can save per list.
MAX_VIEWS = 30
MOST_QUERY = 2_000
#: Parameters of the page or format of a list, which are not part of a view.
_NOT_KEPT = {"after", "format"}
#: Raises `ValidationError` unless the value is a path of a page, without a host.
is_list_path = RegexValidator(r"\A/([\w-]+/)+\Z", "Enter the path of a list, such as /requests/.")


def normal_query(query: str) -> str:
    """Return a query with sorted parameters, so that equal views have equal queries."""
    return urlencode(sorted(pair for pair in parse_qsl(query) if pair[0] not in _NOT_KEPT))


def kept_query(query: str) -> str:
    """Return the normal query. Raises `ValidationError` if it is too long once encoded."""
    normal = normal_query(query)
    if len(normal) > MOST_QUERY:
        raise ValidationError("These filters are too long to be kept.")
    return normal


def visible_experiments(user: Principal | None) -> QuerySet[Experiment]:
    """Return the experiments whose names this user may see.

    These are the experiments in which the user has a role; all for the OPG.
    """
    scope = scope_of(user)
    if scope.sees_all:
        return Experiment.objects.all()
    return Experiment.objects.filter(pk__in=scope.experiments)


def visible_people(user: User) -> QuerySet[User]:
    """Return the active users whom this user may see.

    The OPG and superusers see all, others themselves and those with a role in their experiments.
    """
    people = User.objects.filter(is_active=True)
    scope = scope_of(user)
    if scope.sees_all or user.is_superuser:
        return people
    of_experiments = Membership.objects.filter(experiment__in=scope.experiments)
    return people.filter(Q(pk=user.pk) | Q(pk__in=of_experiments.values("user")))


def find_people(query: str, user: User) -> QuerySet[User]:
    """Return the people with this user name, or with all of the words in their names.

    They come with their roles and cluster logins.
    """
    named = Q()
    for word in query.split():
        named &= Q(first_name__icontains=word) | Q(last_name__icontains=word)
    people = visible_people(user).filter(Q(username__iexact=query) | named)
    return people.prefetch_related("memberships__experiment", "cluster_logins").order_by("username")


def views_for(user: User) -> QuerySet[SavedView]:
    """Return a user's own views of lists, and those shared with the user's experiments."""
    scope = scope_of(user)
    shared = Q(experiment__isnull=False)
    shared &= Q() if scope.sees_all else Q(experiment__in=scope.experiments)
    return SavedView.objects.filter(Q(owner=user) | shared).select_related("owner", "experiment")


def check_owner(user: User, view: SavedView) -> None:
    """Raise `NotAllowed` unless the user owns the view."""
    if view.owner_id != user.pk:
        raise NotAllowed("Only the owner can change a view.")


def delete_view(*, view: SavedView, by: User) -> None:
    """Delete a view. Raises `NotAllowed` unless the user owns it."""
    check_owner(by, view)
    view.delete()


@transaction.atomic
def save_view(
    *,
    owner: User,
    path: str,
    name: str,
    query: str,
    experiment: Experiment | None = None,
    view: SavedView | None = None,
) -> SavedView:
    """Save a view of a list, or change the user's own `view`.

    A view of the same name is replaced. Raises `NotAllowed`, `InvalidFields`.
    """
    if view is not None:
        check_owner(owner, view)
    if experiment is not None and not scope_of(owner).sees(experiment.pk):
        raise NotAllowed("You can share views only with your experiments.")
    User.objects.select_for_update().get(pk=owner.pk)
    same = SavedView.objects.filter(owner=owner, path=path, name=name)
    if view is not None:
        same.exclude(pk=view.pk).delete()
        view.name = name
        view.query = query
        view.experiment = experiment
        view.save(update_fields=["name", "query", "experiment"])
        return view
    if not same.exists() and SavedView.objects.filter(owner=owner, path=path).count() >= MAX_VIEWS:
        raise InvalidFields(
            {"name": [f"You can save {MAX_VIEWS} views of a list. Delete one first."]}
        )
    values = {"query": query, "experiment": experiment}
    return SavedView.objects.update_or_create(owner=owner, path=path, name=name, defaults=values)[0]
