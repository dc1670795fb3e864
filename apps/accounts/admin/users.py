"""Users in the admin: adding one is one task, and their page first says who they are."""

from typing import Any, cast

from axes.models import AccessAttempt
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path
from django.utils import timezone
from django.utils.text import get_text_list

from apps.accounts.admin.personal_data_pages import PersonalDataPages
from apps.accounts.admin.user_form import NewUserForm, PasswordForm, UserForm
from apps.accounts.domain.passwords import request_password_reset
from apps.accounts.domain.users import add_user, deactivate_user, publish_logins, reactivate_user
from apps.accounts.enums import Role, SignIn
from apps.accounts.models import ApiToken, ClusterLogin, Membership, User, shown_name
from apps.accounts.web.http_request import user_of
from apps.core.admin import PortalAdmin
from apps.core.admin.record_history import message_about_addition
from apps.core.domain.events import events_of
from apps.core.errors import NotAllowed
from apps.core.web.form_errors import name_field_in_errors

admin.site.unregister(Group)


class ClusterLoginInline(admin.TabularInline):
    """Logins on clusters, whose archived jobs belong to the user."""

    model = ClusterLogin
    extra = 0
    verbose_name = "login"
    verbose_name_plural = "logins on clusters"

    def get_formset(self, *args: Any, **kwargs: Any) -> Any:
        formset = super().get_formset(*args, **kwargs)
        for name, field in formset.form.base_fields.items():
            name_field_in_errors(field, name)
        return formset


@admin.register(User)
class UserAdmin(PersonalDataPages, PortalAdmin, DjangoUserAdmin):
    """Accounts. Roles are granted by memberships, which also set staff and superuser."""

    about = (
        "People and programs with an account; their roles decide what they see and do. The account "
        "of someone who has left is deactivated, not deleted."
    )
    document = "administration"
    never = ("delete",)
    form = UserForm
    add_form = NewUserForm
    change_password_form = PasswordForm
    change_user_password_template = "accounts/admin_password.html"  # noqa: S105 (a path)
    add_form_template = "accounts/admin_user_add.html"
    change_form_template = "accounts/admin_user.html"
    add_fieldsets = (
        ("Who", {"fields": ("username", "first_name", "last_name", "email")}),
        ("Role", {"fields": ("role", "experiments", "all_experiments")}),
        ("Sign-in", {"fields": ("sign_in", "sign_on_subject", "password", "password_again")}),
    )
    inlines = (ClusterLoginInline,)
    list_display = ("full_name", "username", "email", "roles", "last_login", "is_active")
    list_display_links = ("full_name",)
    ordering = (shown_name(), "username")
    list_filter = ("is_active", "memberships__role", "memberships__experiment")
    list_per_page = 50
    column_titles = {"username": "user name", "last_login": "last sign-in", "email": "e-mail"}
    empty_choices = {"memberships__experiment": "all experiments"}
    search_help_text = "Searches names, user names and e-mail addresses."

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        users: QuerySet[User] = super().get_queryset(request)
        return users.prefetch_related("memberships__experiment")

    @admin.display(description="name", ordering=shown_name())
    def full_name(self, user: User) -> str:
        return user.get_full_name() or user.get_username()

    @admin.display(description="roles")
    def roles(self, user: User) -> str:
        return ", ".join(_roles_in_words(user)) or "–"

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Leave out single sign-on where the portal has none."""
        if obj is None:
            return self.add_fieldsets
        sections: list[Any] = [
            ("Person", {"fields": ("username", "first_name", "last_name", "email", "time_zone")})
        ]
        if settings.OIDC_ISSUER or obj.sign_on_subject:
            fields = ("sign_on_subject", "link_by_name")
            sections.append(("Single sign-on", {"fields": fields}))
        return sections

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> tuple[str, ...]:
        """Fix the name of a user who has signed in: records and events have it as text."""
        return ("username",) if obj and obj.last_login else ()

    def get_inlines(self, request: HttpRequest, obj: User | None) -> Any:
        return self.inlines if obj else ()

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
            return
        cleaned = form.cleaned_data
        added = add_user(
            username=cleaned["username"],
            first_name=cleaned["first_name"],
            last_name=cleaned["last_name"],
            email=cleaned["email"],
            sign_on_subject=cleaned.get("sign_on_subject") or None,
            sign_in=SignIn(cleaned["sign_in"]),
            password=cleaned["password"],
            role=Role(cleaned["role"]) if cleaned["role"] else None,
            experiments=form.scope,
            by=user_of(request),
            at=timezone.now(),
        )
        obj.pk = added.pk

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> list[dict[str, Any]]:
        """Say of a new user who it is and what it may do, not which boxes were ticked."""
        if not add:
            return super().construct_change_message(request, form, formsets, add)
        user = form.instance
        roles = _roles_in_words(User.objects.get(pk=user.pk))
        way = SignIn(form.cleaned_data["sign_in"])
        sign_in = "With a password" if way == SignIn.PASSWORD else way.label
        return message_about_addition(
            [
                ("Name", user.get_full_name()),
                ("E-mail", user.email),
                ("Roles", get_text_list(roles, "and")),
                ("Signs in", sign_in),
            ]
        )

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        if not change:
            return
        super().save_related(request, form, formsets, change)
        if any(formset.has_changed() for formset in formsets):
            publish_logins(user=form.instance, by=user_of(request), at=timezone.now())

    def response_add(
        self, request: HttpRequest, obj: User, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Say what the user can do now, and how the user signs in."""
        if IS_POPUP_VAR in request.POST:
            return super().response_add(request, obj, post_url_continue)
        roles = get_text_list(_roles_in_words(User.objects.get(pk=obj.pk)), "and")
        next_step = _next_step(obj, request.POST.get("sign_in", ""))
        messages.success(request, f"User {obj} added: {roles or 'without a role'}. {next_step}")
        if "_addanother" in request.POST:
            return redirect("admin:accounts_user_add")
        return redirect("admin:accounts_user_change", obj.pk)

    def get_urls(self) -> list[Any]:
        access = self.admin_site.admin_view(self.access_view)
        send = self.admin_site.admin_view(self.send_link_view)
        return [
            path("<int:pk>/access/", access, name="accounts_user_access"),
            path("<int:pk>/link/", send, name="accounts_user_link"),
            *super().get_urls(),
        ]

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: User | None = None,
    ) -> HttpResponse:
        if obj is not None:
            context |= _summary(obj, user_of(request))
        # The page of a new user follows in any case.
        context["show_save_and_continue"] = not add
        response = super().render_change_form(request, context, add, change, form_url, obj)
        if obj is not None and isinstance(response, TemplateResponse):
            cast(dict[str, Any], response.context_data)["title"] = obj.get_full_name() or str(obj)
        return response

    def _user(self, request: HttpRequest, pk: int) -> User:
        user = cast(User | None, self.get_object(request, str(pk)))
        if not self.has_change_permission(request, user):
            raise PermissionDenied
        if user is None:
            raise Http404("There is no such user.")
        return user

    def access_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Say what deactivating or reactivating a user does, and do it."""
        user = self._user(request, pk)
        if request.method != "POST":
            context = {
                **self.admin_site.each_context(request),
                "title": f"{'Deactivate' if user.is_active else 'Reactivate'} {user}",
                "opts": self.opts,
                "original": user,
                **_summary(user, user_of(request)),
            }
            return TemplateResponse(request, "accounts/admin_user_access.html", context)
        change = deactivate_user if "deactivate" in request.POST else reactivate_user
        try:
            change(
                user=user,
                by=user_of(request),
                at=timezone.now(),
                reason=request.POST.get("reason", "")[:2000].strip(),
            )
        except NotAllowed as error:
            messages.error(request, str(error))
        else:
            is_deactivation = change is deactivate_user
            self.log_change(request, user, "Deactivated." if is_deactivation else "Reactivated.")
            done = "deactivated" if is_deactivation else "active again"
            messages.success(request, f"User {user} is {done}.")
        return redirect("admin:accounts_user_change", user.pk)

    def send_link_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Mail the user a link to choose a password."""
        user = self._user(request, pk)
        if request.method == "POST" and _can_get_link(user):
            sent = request_password_reset(user=user, by=user_of(request), at=timezone.now())
            minutes = settings.PASSWORD_RESET_TIMEOUT // 60
            if sent:
                text = f"A link to choose a password is on its way to {user.email}; it is valid "
                messages.success(request, f"{text}for {minutes} minutes.")
            else:
                messages.warning(request, "A link was sent a moment ago. Wait a few minutes.")
        return redirect("admin:accounts_user_change", user.pk)


def _roles_in_words(user: User) -> list[str]:
    """Return the roles of a user: `Liaison of NOvA`. Reads prefetched memberships."""
    roles = []
    for membership in user.memberships.all():
        experiment = membership.experiment or "all experiments"
        roles.append(f"{membership.get_role_display()} of {experiment}")
    return sorted(roles)


def _place_of(membership: Membership) -> tuple[str, str]:
    """Sort roles of all experiments first, then by experiment."""
    return (str(membership.experiment or ""), membership.role)


def _next_step(user: User, sign_in: str) -> str:
    """Say how the new user signs in."""
    if sign_in == SignIn.LINK:
        minutes = settings.PASSWORD_RESET_TIMEOUT // 60
        return f"A link to choose a password is on its way to {user.email}, for {minutes} minutes."
    if sign_in == SignIn.PASSWORD:
        return "Pass on the user name and the password; the user can change it in the settings."
    if settings.OIDC_ISSUER:
        return f"Ask the user to sign in by {settings.OIDC_NAME}."
    return "The user signs in by single sign-on."


def _can_get_link(user: User) -> bool:
    return bool(settings.EMAIL_HOST and user.email and user.is_active)


def _summary(user: User, by: User) -> dict[str, Any]:
    """Return what the page of a user first says: roles, tokens, sign-in and what can be done."""
    now = timezone.now()
    return {
        "memberships": sorted(user.memberships.all(), key=_place_of),
        "deactivation": events_of(user).filter(kind="user.deactivated").last(),
        "removal": events_of(user).filter(kind="user.removed").last(),
        "tokens": ApiToken.objects.filter(user=user, expiry__gt=now).order_by("expiry"),
        "sign_in": _sign_in_of(user),
        "failed_logins": AccessAttempt.objects.filter(username=user.username).exists(),
        "can_get_link": _can_get_link(user),
        "sends_mail": bool(settings.EMAIL_HOST),
        "is_self": user == by,
    }


def _sign_in_of(user: User) -> str:
    """Say how the user signs in."""
    ways = []
    if user.has_usable_password():
        ways.append("by password")
    if user.sign_on_subject:
        ways.append("by single sign-on")
    elif settings.REMOTE_USER_HEADER or (settings.OIDC_ISSUER and not ways):
        ways.append("by single sign-on, linked by the user name")
    if not ways:
        return "in no way: the user has no password, and the portal has no single sign-on"
    return get_text_list(ways, "and")
