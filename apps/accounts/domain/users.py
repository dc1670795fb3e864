"""Users: adding and deactivating them, their visits and settings, and whom a user may see."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from secrets import token_urlsafe
from typing import Any
from zoneinfo import available_timezones

from django.contrib.auth.hashers import make_password
from django.db import transaction
from django.db.models import Q, QuerySet

from apps.accounts.domain.api_tokens import revoke_token
from apps.accounts.domain.passwords import request_password_reset
from apps.accounts.domain.roles import grant_role
from apps.accounts.enums import Role, SignIn
from apps.accounts.models import UNKNOWN_ZONE, ApiToken, Experiment, Membership, Principal, User
from apps.accounts.permissions import scope_of
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, NotAllowed

#: A visit ends when the home page was not opened for this long.
VISIT_PAUSE = timedelta(minutes=30)
#: The time of a visit is stored at most this often.
VISIT_STEP = timedelta(minutes=1)


def note_visit(*, user: User, at: datetime) -> None:
    """Note that a user opens the home page; after a pause, this starts a new visit."""
    if user.visited_at and at - user.visited_at < VISIT_STEP:
        return
    if user.visited_at and at - user.visited_at >= VISIT_PAUSE:
        user.previous_visit_at = user.visited_at
    user.visited_at = at
    user.save(update_fields=["visited_at", "previous_visit_at"])


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


def visible_people(user: User) -> QuerySet[User]:
    """Return the active users whom this user may see.

    The OPG and superusers see all, others themselves and those with a role in their experiments.
    """
    people = User.objects.filter(is_active=True)
    scope = scope_of(user)
    if scope.sees_all or user.is_superuser:
        return people
    of_experiments = Membership.objects.filter(experiment__in=scope.experiment_keys)
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
