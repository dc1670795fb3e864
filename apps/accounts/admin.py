"""Users and memberships in the admin; experiments are in the admin of `portal`."""

from typing import Any, cast

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.http import HttpRequest
from django.utils import timezone

from apps.accounts import domain
from apps.accounts.enums import Role
from apps.accounts.models import ApiToken, ClusterLogin, Membership, User
from apps.core.admin import PortalAdmin, ReadOnlyAdmin

admin.site.unregister(Group)


def user_of(request: HttpRequest) -> User:
    """Return the user, who is always logged in in the admin."""
    return cast(User, request.user)


class ClusterLoginInline(admin.TabularInline):
    model = ClusterLogin
    extra = 0


@admin.register(User)
class UserAdmin(DjangoUserAdmin):
    """Accounts. Roles are granted by memberships, which also set staff and superuser."""

    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Person", {"fields": ("first_name", "last_name", "email", "time_zone")}),
        (
            "Account",
            {
                "fields": (
                    "is_active",
                    "sign_on_subject",
                    "link_by_name",
                    "is_staff",
                    "is_superuser",
                    "last_login",
                    "date_joined",
                )
            },
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
            domain.publish_logins(user=form.instance, by=user_of(request), at=timezone.now())


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """Tokens of all users. Users create them; an admin can only revoke them."""

    about = "Users make their tokens in their settings; an admin can only revoke them."
    document = "api"
    never = ("add", "change")
    list_display = ("name", "user", "scope", "token_key", "created", "expiry", "calls_per_hour")
    list_filter = ("scope",)
    search_fields = ("name", "user__username", "token_key")
    exclude = ("digest",)

    def delete_model(self, request: HttpRequest, obj: ApiToken) -> None:
        domain.revoke_token(
            user=obj.user, token_key=obj.token_key, by=user_of(request), at=timezone.now()
        )


@admin.register(Membership)
class MembershipAdmin(PortalAdmin):
    """Memberships are created and deleted, never changed, so that the events are complete."""

    about = (
        "A role of a user: for one experiment, or for all. "
        "To change a role, delete it and add another."
    )
    document = "administration"
    never = ("change",)
    list_display = ["user", "role", "scope"]
    list_select_related = ["user", "experiment"]
    list_filter = ["role", "experiment"]
    list_per_page = 50
    autocomplete_fields = ["user", "experiment"]

    @admin.display(description="experiment", ordering="experiment")
    def scope(self, obj: Membership) -> str:
        return str(obj.experiment or "all")

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        role = Role(obj.role)
        granted = domain.grant_role(
            user=obj.user,
            role=role,
            experiment=obj.experiment,
            by=user_of(request),
            at=timezone.now(),
        )
        obj.pk = granted.pk

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        domain.revoke_role(membership=obj, by=user_of(request), at=timezone.now())
