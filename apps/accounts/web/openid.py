"""Login with OpenID Connect, using the authorization code flow and PKCE.

mozilla-django-oidc implements the flow. This module adds the provider's endpoints from its
discovery document, the checks of issuer, audience and subject that the library lacks, and the
mapping of claims to users.
"""

import json
import logging
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import jwt
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import SuspiciousOperation, ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from apps.accounts.domain.single_sign_on import Identity, sign_on
from apps.accounts.models import User
from apps.accounts.web.provider import Denied, NoAnswer, call
from apps.core.errors import DomainError

logger = logging.getLogger("opsportal.login")

#: How long the provider's discovery document is cached, in seconds.
KEPT = 3_600
#: The same before a browser is sent to the provider: it must not end at one that is down.
KEPT_BEFORE_LOGIN = 10
#: Codes by which a provider rejects the portal itself (RFC 6749, section 5.2).
CLIENT_ERRORS = {"invalid_client", "unauthorized_client"}
#: Accepted signature algorithms. All use key pairs, because the client secret is not a signing key.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512")
#: Maximum length of a subject according to the standard.
MOST_SUBJECT = 255

_documents: dict[str, tuple[float, dict[str, Any]]] = {}


def discovery(most_seconds: float = KEPT) -> dict[str, Any]:
    """Return the provider's discovery document, at most that old. Raises `NoAnswer`."""
    issuer: str = settings.OIDC_ISSUER
    kept = _documents.get(issuer)
    if kept and time.monotonic() - kept[0] < most_seconds:
        return kept[1]
    address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    try:
        document = call("GET", address).json()
    except Denied as error:
        # The issuer is wrong, or the provider has disabled it: another try would not help now.
        raise NoAnswer(str(error)) from error
    for name in ("issuer", "authorization_endpoint", "token_endpoint", "jwks_uri"):
        if not str(document.get(name)).lower().startswith(("https://", "http://")):
            raise NoAnswer(f"{address} has no {name}")
    if document["issuer"].rstrip("/") != issuer.rstrip("/"):
        raise NoAnswer(f"{address} is of another issuer: {document['issuer']}")
    _documents[issuer] = (time.monotonic(), document)
    return document


class UserRefused(Exception):
    """The portal rejects the user of the provider; the message may be shown."""


_OF_PROVIDER = {
    "OIDC_OP_AUTHORIZATION_ENDPOINT": "authorization_endpoint",
    "OIDC_OP_TOKEN_ENDPOINT": "token_endpoint",
    "OIDC_OP_USER_ENDPOINT": "userinfo_endpoint",
    "OIDC_OP_JWKS_ENDPOINT": "jwks_uri",
}


def setting(name: str, *default: Any) -> Any:
    """Return a setting of mozilla-django-oidc by its name; endpoints come from the provider."""
    if name in _OF_PROVIDER:
        return discovery().get(_OF_PROVIDER[name], "")
    return getattr(settings, name, *default)


class OpenIDBackend(OIDCAuthenticationBackend):
    """Exchanges the provider's code for a user, or raises one of `REFUSALS`."""

    get_settings = staticmethod(setting)

    def __init__(self) -> None:
        # Django creates backends for every page, so this must not query the provider.
        self.UserModel = get_user_model()

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> User | None:
        # This is a login with a password.
        if "nonce" not in credentials:
            return None
        super().__init__()
        user: User | None = super().authenticate(request, **credentials)
        return user

    def get_user(self, user_id: Any) -> User | None:
        """Return the user of a session; None if inactive, which the library does not check."""
        user: User | None = super().get_user(user_id)
        return user if user and self.user_can_authenticate(user) else None

    def get_token(self, payload: dict[str, Any]) -> dict[str, Any]:
        return call("POST", self.OIDC_OP_TOKEN_ENDPOINT, data=payload).json()

    def retrieve_matching_jwk(self, token: str) -> jwt.PyJWK:
        """Return the provider's key that signed the token.

        The standard makes key IDs (`kid`) optional.
        """
        keys = call("GET", self.OIDC_OP_JWKS_ENDPOINT).json().get("keys")
        header = jwt.get_unverified_header(token)
        if (algorithm := header["alg"]) not in ALGORITHMS:
            raise SuspiciousOperation(f"the token is signed by {algorithm!r}")
        for key in keys if isinstance(keys, list) else []:
            if not isinstance(key, dict):
                continue
            if (
                key.get("kid") == header.get("kid", key.get("kid"))
                and key.get("alg", algorithm) == algorithm
            ):
                # The key may be of another kind.
                with suppress(jwt.PyJWTError, TypeError, ValueError):
                    return jwt.PyJWK(key, algorithm)
        raise SuspiciousOperation("the provider has no key for the token")

    def _verify_jws(self, payload: str, key: Any) -> dict[str, Any]:
        claims = _verified(payload, key, required=["exp", "iat", "iss", "aud", "sub"])
        if claims.get("azp", settings.OIDC_RP_CLIENT_ID) != settings.OIDC_RP_CLIENT_ID:
            raise SuspiciousOperation(f"the token was issued to {claims['azp']!r}")
        if len(claims["sub"]) > MOST_SUBJECT:
            raise SuspiciousOperation(f"the subject is longer than {MOST_SUBJECT} characters")
        return claims

    def get_userinfo(
        self, access_token: str, id_token: str, payload: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the user's claims, which may be signed but, unlike a token, do not expire."""
        answer = call(
            "GET", self.OIDC_OP_USER_ENDPOINT, headers={"Authorization": f"Bearer {access_token}"}
        )
        if answer.content_type != "application/jwt":
            return answer.json()
        token = answer.body.decode()
        return _verified(token, self.retrieve_matching_jwk(token), required=["iss", "aud", "sub"])

    def get_or_create_user(self, access_token: str, id_token: str, payload: dict[str, Any]) -> User:
        claims = dict(payload)
        if self.OIDC_OP_USER_ENDPOINT:
            more = self.get_userinfo(access_token, id_token, payload)
            if more.get("sub") != payload["sub"]:
                raise UserRefused("The provider describes another user than it has logged in.")
            claims |= more | {"iss": payload["iss"]}
        try:
            return sign_on(identity=identity_in(claims), at=timezone.now())
        except DomainError as refusal:
            # Django and django-axes would count a DomainError as a wrong password.
            raise UserRefused(str(refusal)) from refusal


def _verified(token: str, key: Any, required: list[str]) -> dict[str, Any]:
    """Return the claims of a token that the provider has signed for the portal.

    Raises `PyJWTError`.
    """
    return jwt.decode(
        token,
        key,
        algorithms=ALGORITHMS,
        audience=settings.OIDC_RP_CLIENT_ID,
        issuer=discovery()["issuer"],
        leeway=60,
        options={"require": required},
    )


def identity_in(claims: dict[str, Any]) -> Identity:
    """Return the identity in a provider's claims. Unverified mail addresses are ignored."""
    groups = claims.get(settings.OIDC_GROUPS_CLAIM) or []
    verified = claims.get("email_verified", True) is not False
    return Identity(
        username=str(claims.get(settings.OIDC_USERNAME_CLAIM) or ""),
        subject=f"{claims['iss']} {claims['sub']}",
        first_name=_text(claims.get("given_name")),
        last_name=_text(claims.get("family_name")),
        email=_address(claims.get("email")) if verified else "",
        groups=frozenset(map(str, groups if isinstance(groups, list) else [groups])),
    )


def _text(claim: Any) -> str:
    return str(claim or "").replace("\0", "")[:150]


def _address(claim: Any) -> str:
    """Return the claim if it is a mail address, else ""."""
    address = str(claim or "")
    with suppress(ValidationError):
        User._meta.get_field("email").clean(address, None)
        return address
    return ""


#: Reasons for a failed login: rejected by the portal, invalid, or provider unavailable.
REFUSALS = (
    UserRefused,
    SuspiciousOperation,
    jwt.PyJWTError,
    Denied,
    NoAnswer,
    KeyError,
    ValueError,
)


def _help() -> str:
    """Return whom to ask about a fault that another login does not end."""
    contact = settings.SUPPORT_CONTACT
    return f"Contact an admin of the portal{': ' if contact else ''}{contact}."


class _View:
    """Base of the views.

    Returns 404 without a provider. Errors redirect to the login page with a message.
    """

    get_settings = staticmethod(setting)

    @method_decorator(login_not_required)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not settings.OIDC_ISSUER:
            raise Http404
        try:
            answer: HttpResponseBase
            answer = super().dispatch(request, *args, **kwargs)  # type: ignore[misc]
        except REFUSALS as error:
            why = json.dumps(f"{type(error).__name__}: {error}"[:300])
            logger.warning(
                "Single sign-on failed: address=%s reason=%s",
                request.META.get("REMOTE_ADDR") or "-",
                why,
            )
            return self._back(request, error)
        return answer

    def _back(self, request: HttpRequest, error: Exception | None) -> HttpResponse:
        if isinstance(error, UserRefused):
            text = str(error)
        elif isinstance(error, NoAnswer):
            text = f"{settings.OIDC_NAME} does not answer. Try again later."
        elif isinstance(error, Denied) and error.code in CLIENT_ERRORS:
            text = (
                f"{settings.OIDC_NAME} rejects the portal: its client ID or secret is wrong. "
                f"{_help()}"
            )
        else:
            text = f"The login by {settings.OIDC_NAME} did not succeed. Try again."
        messages.error(request, text)
        return redirect("accounts:login")


class StartView(_View, OIDCAuthenticationRequestView):
    """Redirect the browser to the provider."""

    def __init__(self, **initial: Any) -> None:
        super(OIDCAuthenticationRequestView, self).__init__(**initial)

    def get(self, request: HttpRequest) -> HttpResponse:
        self.OIDC_OP_AUTH_ENDPOINT = discovery(KEPT_BEFORE_LOGIN)["authorization_endpoint"]
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID
        answer: HttpResponse = super().get(request)
        return answer


class CallbackView(_View, OIDCAuthenticationCallbackView):
    """Log in the user whom the provider redirects back, or show why that failed."""

    def login_success(self) -> HttpResponse:
        """Log in the user for `OIDC_SESSION_HOURS`, however active.

        After that the provider is queried again.
        """
        answer: HttpResponse = super().login_success()
        self.request.session.set_expiry(
            timezone.now() + timedelta(hours=settings.OIDC_SESSION_HOURS)
        )
        return answer

    def login_failure(self) -> HttpResponse:
        return self._back(self.request, None)


class EndView(_View, View):
    """Redirect the browser to the provider's page for logging out, if there is one.

    Source: OpenID Connect RP-Initiated Logout 1.0, section 2. Without a hint of the login, the
    provider asks for a confirmation, so that a link of a stranger logs nobody out.
    """

    def get(self, request: HttpRequest) -> HttpResponse:
        end = str(discovery().get("end_session_endpoint", ""))
        if not end.lower().startswith(("https://", "http://")):
            messages.info(request, f"{settings.OIDC_NAME} offers no page for logging out.")
            return redirect("accounts:login")
        query = urlencode(
            {
                "client_id": settings.OIDC_RP_CLIENT_ID,
                "post_logout_redirect_uri": request.build_absolute_uri(reverse("accounts:login")),
            }
        )
        return redirect(f"{end}{'&' if '?' in end else '?'}{query}")
