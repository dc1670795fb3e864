"""People, experiments and memberships in the back office."""

from functools import reduce
from operator import or_
from typing import Any, cast

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.db.models import Exists, OuterRef, Q
from django.http import HttpRequest
from django.utils import timezone

from apps.accounts import domain
from apps.accounts.enums import Role
from apps.accounts.models import ClusterLogin, Experiment, Membership, User
from apps.core.admin import PortalAdmin

admin.site.unregister(Group)


def user_of(request: HttpRequest) -> User:
    """Return who is logged in: nobody else gets into the back office."""
    return cast(User, request.user)


class ClusterLoginInline(admin.TabularInline):
    model = ClusterLogin
    extra = 0


@admin.register(User)
class UserAdmin(DjangoUserAdmin):
    """Accounts; roles are given as memberships, from which staff and superuser follow."""

    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Person", {"fields": ("first_name", "last_name", "email", "time_zone")}),
        (
            "Account",
            {"fields": ("is_active", "sign_on_subject", "is_staff", "is_superuser", "last_login", "date_joined")},
        ),
    )
    readonly_fields = ("is_staff", "is_superuser", "last_login", "date_joined")
    inlines = (ClusterLoginInline,)
    list_display = ("username", "first_name", "last_name", "is_active", "is_staff")
    list_filter = ("is_active", "memberships__role", "memberships__experiment")
    list_per_page = 50

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        if any(formset.has_changed() for formset in formsets):
            domain.tell_logins(user=form.instance, by=user_of(request), at=timezone.now())


@admin.register(Experiment)
class ExperimentAdmin(PortalAdmin):
    list_display = ["key", "name"]
    search_fields = ["key", "name"]

    def get_readonly_fields(self, request: HttpRequest, obj: Experiment | None = None) -> list[str]:
        """The key of one in use stays: it is in the numbers of requests, and in the environments of jobs."""
        return ["key"] if obj and _is_used(obj) else []

    def has_delete_permission(self, request: HttpRequest, obj: Experiment | None = None) -> bool:
        """One in use stays; Django would also read everything of it, all jobs, to say so."""
        return super().has_delete_permission(request, obj) and obj is not None and not _is_used(obj)


def _is_used(experiment: Experiment) -> bool:
    """Tell whether anything belongs to it; a page asks several times, of the same object."""
    known = vars(experiment)
    if "_is_used" not in known:
        known["_is_used"] = _has_rows(experiment)
    return bool(known["_is_used"])


def _has_rows(experiment: Experiment) -> bool:
    others = [relation for relation in Experiment._meta.related_objects if relation.related_model is not Membership]
    uses = (
        Exists(relation.related_model._default_manager.filter(**{relation.field.name: OuterRef("pk")}))
        for relation in others
    )
    return Experiment.objects.filter(reduce(or_, uses, Q()), pk=experiment.pk).exists()


@admin.register(Membership)
class MembershipAdmin(PortalAdmin):
    """Roles; given and taken, never changed, so that the events tell all."""

    never = ("change",)
    list_display = ["user", "role", "experiment"]
    list_filter = ["role", "experiment"]
    list_per_page = 50
    autocomplete_fields = ["user", "experiment"]

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        role = Role(obj.role)
        granted = domain.grant_role(
            user=obj.user, role=role, experiment=obj.experiment, by=user_of(request), at=timezone.now()
        )
        obj.pk = granted.pk

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        domain.revoke_role(membership=obj, by=user_of(request), at=timezone.now())
