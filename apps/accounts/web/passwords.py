"""Change a password, reset it by mail, and pages around the login."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from axes.utils import reset as unlock
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth import views as auth
from django.contrib.auth.forms import PasswordResetForm, SetPasswordForm
from django.contrib.auth.password_validation import password_validators_help_texts
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse_lazy
from django.utils import timezone

from apps.accounts.domain.passwords import request_password_reset, set_password
from apps.accounts.models import User


def login_help(request: HttpRequest) -> dict[str, Any]:
    """Return what pages say of logins: single sign-on, its roles, and where to get help."""
    return {
        "provider": settings.OIDC_NAME if settings.OIDC_ISSUER else "",
        "roles_by_group": bool(settings.SSO_ROLES),
        "sends_mail": bool(settings.EMAIL_HOST),
        "support_contact": settings.SUPPORT_CONTACT,
    }


def locked(
    request: HttpRequest, response: HttpResponse | None, credentials: Mapping[str, str] | None
) -> HttpResponse:
    """Return the page for a login that django-axes rejects after too many failures."""
    minutes = settings.AXES_COOLOFF_TIME // timedelta(minutes=1)
    return render(request, "accounts/locked.html", {"minutes": minutes}, status=429)


def with_rules(form: Any) -> Any:
    """Say the rules of a new password in sentences: Django's help text is a list in HTML."""
    form.fields["new_password1"].help_text = " ".join(password_validators_help_texts())
    return form


class ChangePasswordView(auth.PasswordChangeView):
    """Change the user's password and end their other sessions."""

    template_name = "accounts/password.html"
    success_url = reverse_lazy("accounts:settings")

    def get_form(self, form_class: Any = None) -> Any:
        return with_rules(super().get_form(form_class))

    def form_valid(self, form: SetPasswordForm) -> HttpResponse:
        user = cast(User, self.request.user)
        set_password(
            user=user, password=form.cleaned_data["new_password1"], by=user, at=timezone.now()
        )
        update_session_auth_hash(self.request, user)
        messages.success(self.request, "Password changed. You are logged out everywhere else.")
        return redirect(self.get_success_url())


class ForgottenPasswordView(auth.PasswordResetView):
    """Mail a link to set a new password.

    The response does not reveal whether the address is known.
    """

    template_name = "accounts/forgotten.html"
    success_url = reverse_lazy("accounts:login")

    def form_valid(self, form: PasswordResetForm) -> HttpResponse:
        address = form.cleaned_data["email"]
        if settings.EMAIL_HOST:
            for user in form.get_users(address):
                request_password_reset(user=user, at=timezone.now())
            messages.success(
                self.request,
                f"If an account has the address {address}, a link for a new password is on "
                "its way. It is valid for"
                f" {settings.PASSWORD_RESET_TIMEOUT // 60} minutes.",
            )
        return redirect(self.get_success_url())


class NewPasswordView(auth.PasswordResetConfirmView):
    """Set a new password with the link from the mail."""

    template_name = "accounts/new_password.html"
    success_url = reverse_lazy("accounts:login")

    def get_form(self, form_class: Any = None) -> Any:
        return with_rules(super().get_form(form_class))

    def form_valid(self, form: SetPasswordForm) -> HttpResponse:
        password = form.cleaned_data["new_password1"]
        set_password(user=form.user, password=password, by=form.user, at=timezone.now())
        unlock(username=form.user.username)
        # The session contains the link's token.
        self.request.session.flush()
        messages.success(self.request, "Password changed. Log in with the new one.")
        return redirect(self.get_success_url())
