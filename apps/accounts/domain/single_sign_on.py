"""Login through a provider or a proxy."""

import logging
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.core.exceptions import ValidationError
from django.db import transaction

from apps.accounts.domain.roles import grant_role, revoke_role
from apps.accounts.enums import Role, SignIn
from apps.accounts.models import Experiment, Membership, User
from apps.core.domain.events import publish
from apps.core.errors import NotAllowed

logger = logging.getLogger(__name__)
#: The actor of changes caused by a login through a provider or proxy.
SIGN_ON = "single sign-on"


def ways_to_sign_in() -> list[SignIn]:
    """Return how a new user can sign in with the settings of the portal, most convenient first."""
    ways = [SignIn.PASSWORD]
    if settings.OIDC_ISSUER or settings.REMOTE_USER_HEADER:
        ways.insert(0, SignIn.SINGLE_SIGN_ON)
    if settings.EMAIL_HOST:
        ways.insert(0, SignIn.LINK)
    return ways


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
