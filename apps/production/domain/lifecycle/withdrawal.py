"""What other apps discard before a started request returns to the queue."""

from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from django.conf import settings

from apps.core.domain.plugins import Registry, UnknownPlugin
from apps.core.errors import InvalidTransition

if TYPE_CHECKING:
    from apps.production.models import Request


class WithdrawalStep(Protocol):
    """A plugin that discards the planned jobs of a request, in the transaction that returns it.

    The request is locked. It returns the number of jobs, and raises `InvalidTransition` if one of
    them may have been submitted meanwhile.
    """

    def __call__(self, *, request: "Request", at: datetime) -> int: ...


WITHDRAWAL_STEPS: Registry[WithdrawalStep] = Registry(
    "opsportal.withdrawal_steps", settings.WITHDRAWAL_STEPS
)


def withdraw_planned_jobs(*, request: "Request", at: datetime) -> int:
    """Discard the planned jobs of a request, and return their number.

    Raises `InvalidTransition` if a job may have been submitted, or if a plugin cannot be loaded.
    """
    jobs = 0
    for name in WITHDRAWAL_STEPS.names():
        try:
            step = WITHDRAWAL_STEPS.get(name)
        except UnknownPlugin as error:
            raise InvalidTransition(
                f"{request} cannot return to the queue: the plugin “{name}” cannot be loaded."
            ) from error
        jobs += step(request=request, at=at)
    return jobs
