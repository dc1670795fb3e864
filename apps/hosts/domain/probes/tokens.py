"""Signed tokens with which probe jobs report their results. The portal does not store them."""

from datetime import timedelta

from django.core.signing import BadSignature, TimestampSigner

from apps.hosts.models import ProbeJob

#: Longer than a probe job waits and runs.
LIFETIME = timedelta(days=1)
_SALT = "opsportal.probes"


def new_probe_token(job: ProbeJob) -> str:
    """Return the token of a probe job, valid for a day."""
    return TimestampSigner(salt=_SALT).sign(job.name)


def read_probe_token(text: str) -> str | None:
    """Return the name of the probe job of a token; None if it is invalid or has expired."""
    try:
        return TimestampSigner(salt=_SALT).unsign(text[:500], max_age=LIFETIME)
    except BadSignature:
        return None
