"""Roles of users in the admin."""

from typing import Any, ClassVar, cast

from django import forms
from django.contrib import admin
from django.core.exceptions import NON_FIELD_ERRORS
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from apps.accounts.domain.roles import grant_role, revoke_role
from apps.accounts.enums import Role
from apps.accounts.models import Membership, shown_name
from apps.accounts.web.http_request import user_of
from apps.core.admin import PortalAdmin
from apps.core.web.people import name_of


class MembershipForm(forms.ModelForm):
    """A role of a user, of one experiment unless a tick says that it is of all."""

    all_experiments = forms.BooleanField(
        required=False,
        label="All experiments",
        help_text="Also those that are added later. Admins of all experiments use the back office.",
    )

    class Meta:
        model = Membership
        fields = ("user", "role", "experiment")
        help_texts: ClassVar = {
            "role": (
                "Liaisons write requests, approvers sign and operate them, shifters operate, "
                "admins set up."
            ),
            "experiment": "The role counts for it alone. For all of them, tick the box below.",
        }
        error_messages: ClassVar = {
            "user": {"required": "Choose a user."},
            "role": {"required": "Choose a role."},
            NON_FIELD_ERRORS: {"unique_together": "The user has this role already."},
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "user" in self.fields:
            cast(Any, self.fields["user"]).label_from_instance = name_of

    def clean(self) -> dict[str, Any]:
        """Require a choice: a field that was forgotten gives nobody all experiments."""
        cleaned: dict[str, Any] = super().clean() or {}
        is_for_all = cleaned.get("all_experiments")
        if cleaned.get("experiment") and is_for_all:
            self.add_error("all_experiments", "Choose one experiment or all of them, not both.")
        is_forgotten = "experiment" in cleaned and not cleaned["experiment"]
        if is_forgotten and not is_for_all:
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
    list_title = "Roles of users"
    record_name = "role"
    list_display = ["full_name", "user", "role", "scope"]
    ordering = [shown_name("user__"), "user__username", "pk"]
    empty_choices = {"experiment": "all experiments"}
    search_help_text = "Searches names, user names, e-mail addresses and experiments."
    column_titles = {"user": "user name"}
    deletes_in_bulk = True
    list_select_related = ["user", "experiment"]
    list_filter = ["role", "experiment"]
    search_fields = [
        "user__username",
        "user__first_name",
        "user__last_name",
        "user__email",
        "experiment__key",
    ]
    list_per_page = 50
    autocomplete_fields = ["user", "experiment"]

    @admin.display(description="name", ordering=shown_name("user__"))
    def full_name(self, obj: Membership) -> str:
        return obj.user.get_full_name() or obj.user.get_username()

    @admin.display(description="experiment", ordering="experiment")
    def scope(self, obj: Membership) -> str:
        return str(obj.experiment or "all experiments")

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
        granted = grant_role(
            user=obj.user,
            role=role,
            experiment=obj.experiment,
            by=user_of(request),
            at=timezone.now(),
        )
        obj.pk = granted.pk

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        revoke_role(membership=obj, by=user_of(request), at=timezone.now())
