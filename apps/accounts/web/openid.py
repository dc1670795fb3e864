"""Login by OpenID Connect, with the authorization code flow and PKCE.

mozilla-django-oidc does the flow. This module adds the provider's addresses from its discovery document, the checks of
issuer, audience and subject that the library lacks, and the mapping of claims to users.
"""

import json
import logging
import time
from contextlib import suppress
from typing import Any

import jwt
import requests
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.decorators import method_decorator
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from apps.accounts import domain
from apps.accounts.models import User
from apps.core.errors import DomainError

logger = logging.getLogger("opsportal.login")

#: How long the discovery document of the provider is cached, in seconds.
KEPT = 3_600
#: Accepted signatures of tokens: those with a key pair, because the client secret is not a signing key.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512")

_documents: dict[str, tuple[float, dict[str, Any]]] = {}


class NoAnswer(Exception):
    """The provider is unavailable, or its answer is not OpenID Connect."""


def discovery() -> dict[str, Any]:
    """Return the provider's discovery document. Raises `NoAnswer`."""
    issuer: str = settings.OIDC_ISSUER
    kept = _documents.get(issuer)
    if kept and time.monotonic() - kept[0] < KEPT:
        return kept[1]
    address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    try:
        found = requests.get(address, timeout=settings.OIDC_TIMEOUT, allow_redirects=False).json()
        said = found["issuer"]
    except (requests.RequestException, ValueError, KeyError, TypeError) as error:
        raise NoAnswer(f"{address}: {error}") from error
    if said.rstrip("/") != issuer.rstrip("/"):
        raise NoAnswer(f"{address} is of another issuer: {said}")
    _documents[issuer] = (time.monotonic(), found)
    return dict(found)


class Refused(Exception):
    """The portal refuses the user of the provider; the message may be shown."""


_OF_PROVIDER = {
    "OIDC_OP_AUTHORIZATION_ENDPOINT": "authorization_endpoint",
    "OIDC_OP_TOKEN_ENDPOINT": "token_endpoint",
    "OIDC_OP_USER_ENDPOINT": "userinfo_endpoint",
    "OIDC_OP_JWKS_ENDPOINT": "jwks_uri",
}


def setting(name: str, *default: Any) -> Any:
    """Return a setting of mozilla-django-oidc, by its name there; addresses come from the provider."""
    if name in _OF_PROVIDER:
        return discovery().get(_OF_PROVIDER[name], "")
    return getattr(settings, name, *default)


class OpenIDBackend(OIDCAuthenticationBackend):
    """Turns the provider's code into a user, or raises one of `REFUSALS`."""

    get_settings = staticmethod(setting)

    def __init__(self) -> None:
        self.UserModel = get_user_model()  # created for each page, so the provider is not queried here

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> User | None:
        if "nonce" not in credentials:  # a login by password
            return None
        super().__init__()
        user: User | None = super().authenticate(request, **credentials)
        return user

    def retrieve_matching_jwk(self, token: str) -> jwt.PyJWK:
        """Return the provider's key that signed the token; key IDs (`kid`) are optional in the standard."""
        answer = requests.get(self.OIDC_OP_JWKS_ENDPOINT, timeout=settings.OIDC_TIMEOUT)
        answer.raise_for_status()
        header = jwt.get_unverified_header(token)
        if (algorithm := header["alg"]) not in ALGORITHMS:
            raise SuspiciousOperation(f"the token is signed by {algorithm!r}")
        for key in answer.json()["keys"]:
            if key.get("kid") == header.get("kid", key.get("kid")) and key.get("alg", algorithm) == algorithm:
                with suppress(jwt.PyJWTError):  # a key of another kind
                    return jwt.PyJWK(key, algorithm)
        raise SuspiciousOperation("the provider has no key for the token")

    def _verify_jws(self, payload: str, key: Any) -> dict[str, Any]:
        return jwt.decode(
            payload,
            key,
            algorithms=ALGORITHMS,
            audience=settings.OIDC_RP_CLIENT_ID,
            issuer=discovery()["issuer"],
            leeway=60,
            options={"require": ["exp", "iat", "iss", "aud", "sub"]},
        )

    def get_or_create_user(self, access_token: str, id_token: str, payload: dict[str, Any]) -> User:
        claims = dict(payload)
        if self.OIDC_OP_USER_ENDPOINT:
            more = self.get_userinfo(access_token, id_token, payload)
            if more.get("sub") != payload["sub"]:
                raise Refused("The provider describes another user than it has logged in.")
            claims |= more
        try:
            return domain.sign_on(identity=identity_in(claims), at=timezone.now())
        except DomainError as refusal:  # as a DomainError, Django and django-axes would count a wrong password
            raise Refused(str(refusal)) from refusal


def identity_in(claims: dict[str, Any]) -> domain.Identity:
    """Return the identity in the claims of a provider. Unverified mail addresses are ignored."""
    groups = claims.get(settings.OIDC_GROUPS_CLAIM) or []
    verified = claims.get("email_verified", True) is not False
    return domain.Identity(
        username=str(claims.get(settings.OIDC_USERNAME_CLAIM) or ""),
        subject=f"{claims['iss']} {claims['sub']}",
        first_name=_text(claims.get("given_name")),
        last_name=_text(claims.get("family_name")),
        email=_text(claims.get("email")) if verified else "",
        groups=frozenset(map(str, groups if isinstance(groups, list) else [groups])),
    )


def _text(claim: Any) -> str:
    return str(claim or "").replace("\0", "")[:150]


#: Reasons why a login fails: refused by the portal, invalid, or the provider is unavailable.
REFUSALS = (Refused, SuspiciousOperation, jwt.PyJWTError, requests.RequestException, NoAnswer, KeyError, ValueError)


class _View:
    """Base of both views: 404 without a provider; errors lead back to the login page with a message."""

    get_settings = staticmethod(setting)

    @method_decorator(login_not_required)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not settings.OIDC_ISSUER:
            raise Http404
        try:
            answer: HttpResponseBase = super().dispatch(request, *args, **kwargs)  # type: ignore[misc]
        except REFUSALS as error:
            why = json.dumps(f"{type(error).__name__}: {error}"[:300])
            logger.warning("Single sign-on failed: address=%s reason=%s", request.META.get("REMOTE_ADDR") or "-", why)
            return self._back(request, error)
        return answer

    def _back(self, request: HttpRequest, error: Exception | None) -> HttpResponse:
        if isinstance(error, Refused):
            text = str(error)
        elif isinstance(error, NoAnswer | requests.RequestException):
            text = f"{settings.OIDC_NAME} does not answer. Try again later."
        else:
            text = f"The login by {settings.OIDC_NAME} did not succeed. Try again."
        messages.error(request, text)
        return redirect("accounts:login")


class StartView(_View, OIDCAuthenticationRequestView):
    """Send the browser to the provider."""

    def __init__(self, **initial: Any) -> None:
        super(OIDCAuthenticationRequestView, self).__init__(**initial)

    def get(self, request: HttpRequest) -> HttpResponse:
        self.OIDC_OP_AUTH_ENDPOINT = setting("OIDC_OP_AUTHORIZATION_ENDPOINT")
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID
        answer: HttpResponse = super().get(request)
        return answer


class CallbackView(_View, OIDCAuthenticationCallbackView):
    """Log in the user who comes back from the provider, or show why not."""

    def login_failure(self) -> HttpResponse:
        return self._back(self.request, None)
