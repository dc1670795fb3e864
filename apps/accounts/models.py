"""Users, experiments and memberships."""

from collections.abc import Collection
from typing import Any, Generic, Self, TypeAlias, TypeVar
from zoneinfo import available_timezones

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Value
from django.db.models.functions import Coalesce, Concat, Lower, NullIf, Trim
from knox.models import AbstractAuthToken

from apps.accounts.enums import Role, TokenScope
from apps.accounts.permissions import Scope, scope_of

M = TypeVar("M", bound=models.Model)
UNKNOWN_ZONE = "“{}” is no time zone of the IANA list, such as Europe/Berlin."


class User(AbstractUser):  # type: ignore[django-manager-missing]  # of knox's tokens
    """A person, or a program with a token."""

    time_zone = models.CharField(
        max_length=64, blank=True, help_text="IANA name. Empty: the portal's default."
    )
    sign_on_subject = models.CharField(
        "identity at single sign-on",
        max_length=600,
        unique=True,
        null=True,
        blank=True,
        help_text=(
            "Issuer and subject, separated by a space. Clear it to link the account by user"
            " name at the next login."
        ),
    )
    link_by_name = models.BooleanField(
        "link by name",
        default=False,
        db_default=False,
        help_text=(
            "Link the account to the next sign-on with this user name, although it has a "
            "password. Ignored for staff."
        ),
    )
    is_demo = models.BooleanField(
        default=False, editable=False, help_text="Its password is public."
    )
    visited_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Last time the home page was opened."
    )
    previous_visit_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="The same, of the previous visit."
    )
    #: Caches of `permissions`.
    _scope: Scope
    _logins: frozenset[tuple[str, str]]

    def __str__(self) -> str:
        return self.username

    @classmethod
    def from_db(
        cls, db: str | None, field_names: Collection[str], values: Collection[Any], **more: Any
    ) -> Self:
        """Load a user.

        Without DEMO, users of the demo are inactive, so their sessions, tokens and logins are
        rejected.
        """
        user = super().from_db(db, field_names, values, **more)
        if "is_demo" in field_names and user.is_demo and not settings.DEMO:
            user.is_active = False
        return user

    def clean(self) -> None:
        super().clean()
        if self.time_zone and self.time_zone not in available_timezones():
            raise ValidationError({"time_zone": UNKNOWN_ZONE.format(self.time_zone)})


def shown_name(prefix: str = "") -> Lower:
    """Return what users are sorted by: the full name as it is shown, or else the user name.

    `prefix` leads to the user, such as `user__`.
    """
    full_name = Trim(Concat(f"{prefix}first_name", Value(" "), f"{prefix}last_name"))
    return Lower(Coalesce(NullIf(full_name, Value("")), f"{prefix}username"))


#: The actor of a change: a user, or the name of a component of the portal.
Principal: TypeAlias = User | str


class Experiment(models.Model):
    """A collaboration with its own production; `key` is the prefix of its request keys."""

    key = models.SlugField(max_length=16, help_text="Short, in upper case, for example NOVA.")
    name = models.CharField(max_length=100)

    class Meta:
        ordering = ["key"]
        constraints = [
            # Accounts and requests refer to the key case-insensitively.
            models.UniqueConstraint(
                Lower("key"),
                name="experiment_key_once",
                violation_error_message="An experiment has this key already: upper and lower "
                "case are the same.",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A role of a user for one experiment, or for all of them."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    experiment = models.ForeignKey(
        Experiment,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="memberships",
        help_text="Empty: all experiments.",
    )
    role = models.CharField(max_length=16, choices=Role)

    class Meta:
        verbose_name = "role"
        verbose_name_plural = "roles"
        constraints = [
            models.UniqueConstraint(
                fields=["user", "experiment", "role"], nulls_distinct=False, name="membership_once"
            ),
            models.CheckConstraint(
                condition=models.Q(role__in=Role.values), name="membership_role"
            ),
        ]

    def __str__(self) -> str:
        return (
            f"{self.user} is {self.get_role_display().lower()} of "
            f"{self.experiment or 'all experiments'}"
        )


class ApiToken(AbstractAuthToken):
    """An API token, of which only a hash is stored, with a name given by its user."""

    name = models.CharField(max_length=64)
    scope = models.CharField(max_length=8, choices=TokenScope, default=TokenScope.WRITE.value)
    calls_per_hour = models.PositiveIntegerField(
        null=True, blank=True, help_text="Empty: the limit of the portal."
    )

    class Meta:
        verbose_name = "API token"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(scope__in=TokenScope.values), name="api_token_scope"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"


class ClusterLogin(models.Model):
    """A login of a user on clusters; archived jobs of this login belong to the user.

    Only admins add logins, because they give access to scripts and environments. Several users can
    share a login.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="cluster_logins")
    login = models.CharField(max_length=64)
    cluster = models.CharField(
        max_length=64, blank=True, help_text="Name of the cluster. Empty: all clusters."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "login", "cluster"], name="cluster_login_once")
        ]

    def __str__(self) -> str:
        return f"{self.login} on {self.cluster or 'every cluster'}"


class SavedView(models.Model):
    """A named list with filters: the query of a page, private or shared with an experiment."""

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_views")
    path = models.CharField(max_length=100, help_text="The address of the list.")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=2_000, blank=True)
    experiment = models.ForeignKey(
        "accounts.Experiment",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        help_text="Shared with its members.",
    )

    class Meta:
        ordering = ["name", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["owner", "path", "name"], name="saved_view_once")
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.owner}"


class ExperimentQuerySet(models.QuerySet[M], Generic[M]):
    """Rows with a nullable field `experiment`."""

    def visible_to(self, user: User) -> Self:
        """Return rows visible to the user: rows of their experiments, or all for the OPG."""
        scope = scope_of(user)
        if scope.sees_all:
            return self
        return self.filter(experiment__in=scope.experiment_keys)
