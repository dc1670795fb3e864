"""Users and memberships in the admin; experiments are in the admin of `portal`."""

from typing import Any, ClassVar, cast

from axes.admin import AccessAttemptAdmin, AccessFailureLogAdmin, AccessLogAdmin
from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from apps.accounts import domain
from apps.accounts.enums import Role
from apps.accounts.models import ApiToken, ClusterLogin, Membership, User
from apps.core.admin import PortalAdmin, ReadOnlyAdmin

admin.site.unregister(Group)
for login_records in (AccessAttempt, AccessFailureLog, AccessLog):
    admin.site.unregister(login_records)


@admin.register(AccessAttempt)
class LoginAttemptAdmin(ReadOnlyAdmin, AccessAttemptAdmin):
    """Failed logins that count towards a lock. Deleting them unlocks."""

    about = "Failed logins that count towards a lock. Deleting them unlocks the login."
    document = "security"
    never = ("add", "change")


@admin.register(AccessFailureLog)
class LoginFailureAdmin(ReadOnlyAdmin, AccessFailureLogAdmin):
    """Failed logins, if they are stored."""


@admin.register(AccessLog)
class LoginLogAdmin(ReadOnlyAdmin, AccessLogAdmin):
    """Logins and logouts, if they are stored."""


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
        (None, {"fields": ("username", "password_state")}),
        ("Roles", {"fields": ("roles",)}),
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
    readonly_fields = (
        "password_state",
        "roles",
        "is_staff",
        "is_superuser",
        "last_login",
        "date_joined",
    )
    inlines = (ClusterLoginInline,)
    list_display = ("username", "first_name", "last_name", "is_active", "is_staff")
    list_filter = ("is_active", "memberships__role", "memberships__experiment")
    list_per_page = 50

    @admin.display(description="password")
    def password_state(self, user: User) -> SafeString:
        address = reverse("admin:auth_user_password_change", args=[user.pk])
        if user.has_usable_password():
            return format_html('Set. <a href="{}">Change it</a>', address)
        text = 'None: the user can log in only by single sign-on. <a href="{}">Set a password</a>'
        return format_html(text, address)

    @admin.display(description="memberships")
    def roles(self, user: User) -> SafeString:
        """List the roles, each with a link to the page that deletes it."""
        memberships = user.memberships.select_related("experiment").order_by(
            "experiment__key", "role"
        )
        rows = []
        for membership in memberships:
            address = reverse("admin:accounts_membership_change", args=[membership.pk])
            experiment = membership.experiment or "all experiments"
            rows.append((address, membership.get_role_display(), experiment))
        lines = format_html_join("", '<a href="{}">{} of {}</a><br>', rows)
        if not rows:
            lines = mark_safe("No role: the user sees almost nothing.<br>")
        add = reverse("admin:accounts_membership_add")
        return format_html('{}<a href="{}?user={}">Add a role</a>', lines, add, user.pk)

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


class MembershipForm(forms.ModelForm):
    """A role of a user. Liaisons are of one experiment, unless a tick says that they are of all."""

    all_experiments = forms.BooleanField(
        required=False,
        label="All experiments",
        help_text="For a liaison of all experiments. Other roles need no tick.",
    )

    class Meta:
        model = Membership
        fields = ("user", "role", "experiment")
        help_texts: ClassVar = {
            "experiment": "A liaison needs one. For other roles, empty means all experiments."
        }
        error_messages: ClassVar = {
            "user": {"required": "Choose a user."},
            "role": {"required": "Choose a role."},
        }

    def clean(self) -> dict[str, Any]:
        """Require a choice: a field that was forgotten gives nobody all experiments."""
        cleaned: dict[str, Any] = super().clean() or {}
        is_for_all = cleaned.get("all_experiments")
        if cleaned.get("experiment") and is_for_all:
            self.add_error("all_experiments", "Choose one experiment or all of them, not both.")
        is_liaison = cleaned.get("role") == Role.LIAISON
        if is_liaison and "experiment" in cleaned and not cleaned["experiment"] and not is_for_all:
            self.add_error("experiment", "Choose an experiment, or tick “All experiments” below.")
        return cleaned


@admin.register(Membership)
class MembershipAdmin(PortalAdmin):
    """Memberships are created and deleted, never changed, so that the events are complete."""

    about = (
        "A role of a user: for one experiment, or for all. "
        "To change a role, delete it and add another."
    )
    document = "administration"
    form = MembershipForm
    add_form_template = "accounts/admin_membership.html"
    never = ("change",)
    list_display = ["user", "role", "scope"]
    list_select_related = ["user", "experiment"]
    list_filter = ["role", "experiment"]
    list_per_page = 50
    autocomplete_fields = ["user", "experiment"]

    @admin.display(description="experiment", ordering="experiment")
    def scope(self, obj: Membership) -> str:
        return str(obj.experiment or "all")

    def get_fields(self, request: HttpRequest, obj: Membership | None = None) -> list[Any]:
        fields = ["user", "role", "experiment"]
        return fields if obj else [*fields, "all_experiments"]

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Add a role. With `?role=`, the page is about that role, and lists who has it."""
        context = dict(extra_context or {})
        role = request.GET.get("role", "")
        if role in Role.values:
            label = Role(role).label.lower()
            article = "an" if label[0] in "aeiou" else "a"
            holders = Membership.objects.filter(role=role).select_related("user", "experiment")
            context["title"] = f"Add {article} {label}"
            context["role_label"] = label
            context["holders"] = holders.order_by("experiment__key", "user__username")
        return super().add_view(request, form_url, context)

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
