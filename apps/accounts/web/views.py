"""Settings of the account and API tokens."""

from typing import Any, NamedTuple

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import BACKEND_SESSION_KEY
from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts.domain import api_tokens
from apps.accounts.domain.users import choose_time_zone
from apps.accounts.models import ApiToken, User
from apps.accounts.web.call_quota import quota_of
from apps.accounts.web.forms import SettingsForm, TokenForm
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors


class LogoutView(auth_views.LogoutView):
    """End the session, and remind users of single sign-on that their session there continues."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        backend = str(request.session.get(BACKEND_SESSION_KEY, ""))
        answer = super().post(request, *args, **kwargs)
        if backend.endswith(".OpenIDBackend"):
            sentence = format_html(
                "You are logged out of the portal, but not of {name}. "
                '<a href="{url}">Log out of {name}, too</a>',
                name=settings.OIDC_NAME,
                url=reverse("accounts:openid-logout"),
            )
            messages.info(request, sentence)
        return answer


# The next views import single sign-on on demand: cryptography takes a tenth of a second to
# load.
@login_not_required
def start_openid(request: HttpRequest) -> HttpResponseBase:
    """Redirect the browser to the provider of single sign-on."""
    from apps.accounts.web.openid import StartView

    answer: HttpResponseBase = StartView.as_view()(request)
    return answer


@login_not_required
def finish_openid(request: HttpRequest) -> HttpResponseBase:
    """Log in the user whom the provider redirects back."""
    from apps.accounts.web.openid import CallbackView

    answer: HttpResponseBase = CallbackView.as_view()(request)
    return answer


@login_not_required
def end_openid(request: HttpRequest) -> HttpResponseBase:
    """Redirect the browser to where it logs out of single sign-on."""
    from apps.accounts.web.openid import EndView

    return EndView.as_view()(request)


@require_http_methods(["GET", "POST"])
def my_settings(request: AuthenticatedRequest) -> HttpResponse:
    user = request.user
    form = SettingsForm(request.POST or None, initial={"time_zone": user.time_zone})
    if request.method == "POST" and form.is_valid():
        choose_time_zone(user=user, time_zone=form.cleaned_data["time_zone"])
        messages.success(request, "Saved.")
        return redirect("accounts:settings")
    return render(request, "accounts/settings.html", _context(user, form=form))


@require_POST
def create_token(request: AuthenticatedRequest) -> HttpResponse:
    """Create a token and show it once; only its hash is stored."""
    user = request.user
    form = TokenForm(request.POST)
    if form.is_valid():
        with show_errors(request, form):
            token = api_tokens.create_token(
                user=user, by=user, at=timezone.now(), **form.cleaned_data
            )
            return render(request, "accounts/settings.html", _context(user, new_token=token))
    return render(request, "accounts/settings.html", _context(user, token_form=form), status=400)


@require_POST
def revoke_token(request: AuthenticatedRequest, token_key: str) -> HttpResponse:
    user = request.user
    if not api_tokens.revoke_token(user=user, token_key=token_key, by=user, at=timezone.now()):
        raise Http404
    messages.success(request, "Token revoked.")
    return redirect("accounts:settings")


def _context(user: User, *, form: SettingsForm | None = None, **more: Any) -> dict[str, Any]:
    return {
        "form": form or SettingsForm(initial={"time_zone": user.time_zone}),
        "token_form": TokenForm(),
        "tokens": _token_uses(user),
        "memberships": user.memberships.select_related("experiment"),
        **more,
    }


class TokenUse(NamedTuple):
    """A token with its calls in this hour, and their limit."""

    token: ApiToken
    calls: int
    limit: int


def _token_uses(user: User) -> list[TokenUse]:
    at = timezone.now()
    uses = []
    for token in ApiToken.objects.filter(user=user).order_by("-created"):
        quota = quota_of(token)
        uses.append(TokenUse(token, quota.add(token.token_key, 0, at=at), quota.most))
    return uses
