"""Signed tokens with which jobs report their phases.

The portal does not store them. A token is valid for the first job array that reports with it. It
names the cluster, experiment, request and stage, so a job cannot claim others.
"""

import secrets
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.core.signing import BadSignature, Signer

from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.core.domain.quotas import HOUR, Quota

#: Longer than any job queues and runs.
LIFETIME = timedelta(days=90)
_SALT = "opsportal.phases"


@dataclass(frozen=True, slots=True)
class PhaseToken:
    """The content of a token: primary keys of cluster and experiment, and an identifying label.

    `maker` is the user who created the token; 0 for the portal, and for tokens of older versions.
    """

    cluster_id: int
    experiment_id: int
    request_key: str
    stage: str
    label: str
    issued_at: int
    maker: int = 0

    @property
    def expires_at(self) -> datetime:
        return datetime.fromtimestamp(self.issued_at, UTC) + LIFETIME


def issue_phase_token(
    *, user: User, cluster_id: int, experiment_id: int, request_key: str, stage: str, at: datetime
) -> str:
    """Return a token of a user, valid as long as the user has a role in the experiment.

    Raises `LimitReached` if the user has created too many in an hour.
    """
    quota = Quota("phase-tokens", settings.MAX_PHASE_TOKENS_PER_HOUR, HOUR)
    if quota.add(user.pk, 1, at=at) > quota.most:
        begin = quota.ends_at(at) - timedelta(hours=1)
        message = (
            f"You have created {quota.most:,} tokens since {begin:%H:%M} UTC, the most in an hour."
        )
        raise quota.refusal(message, at=at)
    return new_phase_token(
        cluster_id=cluster_id,
        experiment_id=experiment_id,
        request_key=request_key,
        stage=stage,
        at=at,
        maker=user.pk,
    )


def new_phase_token(
    *,
    cluster_id: int,
    experiment_id: int,
    at: datetime,
    request_key: str = "",
    stage: str = "",
    label: str = "",
    maker: int = 0,
) -> str:
    """Return a token for a job that has not started yet.

    With a `label`, the same arguments return the same token.
    """
    label = label or secrets.token_urlsafe(12)
    issued_at = int(at.timestamp())
    token = PhaseToken(cluster_id, experiment_id, request_key, stage, label, issued_at, maker)
    return Signer(salt=_SALT).sign_object(astuple(token))


def read_phase_token(text: str, *, at: datetime) -> PhaseToken | None:
    """Return the content of a token; None if its signature is invalid or it has expired."""
    try:
        token = PhaseToken(*Signer(salt=_SALT).unsign_object(text[:2000]))
    except (BadSignature, TypeError, ValueError):
        return None
    return token if at < token.expires_at else None


def maker_has_role(token: PhaseToken) -> bool:
    """Return whether the user who created a token may still see its experiment.

    Tokens of the portal itself are always valid.
    """
    if not token.maker:
        return True
    return scope_of(User.objects.filter(pk=token.maker).first()).sees(token.experiment_id)
