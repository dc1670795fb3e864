"""Tokens with which jobs report their phases: signed, so that the portal need not store them.

A token counts for one job array: the first that reports with it. It says for which cluster, experiment, request and
stage; a job cannot claim others.
"""

import secrets
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta

from django.core.signing import BadSignature, Signer

#: Longer than any job waits and runs.
LIFETIME = timedelta(days=90)
_SALT = "opsportal.phases"


@dataclass(frozen=True, slots=True)
class PhaseToken:
    """What a token says: primary keys of cluster and experiment; `label` tells tokens apart."""

    cluster: int
    experiment: int
    request_key: str
    stage: str
    label: str
    issued_at: int

    @property
    def expires_at(self) -> datetime:
        return datetime.fromtimestamp(self.issued_at, UTC) + LIFETIME


def new_phase_token(
    *, cluster: int, experiment: int, at: datetime, request_key: str = "", stage: str = "", label: str = ""
) -> str:
    """Return a token for a job that has not started yet. With a `label`, the same arguments give the same token."""
    token = PhaseToken(cluster, experiment, request_key, stage, label or secrets.token_urlsafe(12), int(at.timestamp()))
    return Signer(salt=_SALT).sign_object(astuple(token))


def read_phase_token(text: str, *, at: datetime) -> PhaseToken | None:
    """Return what a token says; None if it was not issued here, or has expired."""
    try:
        token = PhaseToken(*Signer(salt=_SALT).unsign_object(text[:2000]))
    except (BadSignature, TypeError, ValueError):
        return None
    return token if at < token.expires_at else None
