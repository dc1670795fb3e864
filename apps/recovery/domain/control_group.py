"""Which jobs are the control group of a rule: chosen by a keyed hash that no job can influence."""

import hashlib
import hmac

from django.conf import settings

_STEPS = 1_000_000


def is_control(*, rule: int, job: str, percent: float) -> bool:
    """Return whether a job is in the control group of a rule.

    `job` names the job in all its attempts, such as request, stage and number; `percent` is the
    size of the group. The same job is always in the group, or never.
    """
    key = settings.SECRET_KEY.encode()
    digest = hmac.new(key, f"recovery:{rule}:{job}".encode(), hashlib.sha256).digest()
    draw = int.from_bytes(digest[:8], "big") % _STEPS
    return draw < percent / 100 * _STEPS
