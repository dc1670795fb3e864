"""What other apps do before a rejected request is reopened."""

from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from django.conf import settings

from apps.accounts.models import User
from apps.core.domain.plugins import Registry, UnknownPlugin
from apps.core.errors import InvalidTransition

if TYPE_CHECKING:
    from apps.production.models import Request


class ReopeningStep(Protocol):
    """A plugin that takes what a rejected request gave back, in the transaction that reopens it.

    It is called before the request is locked. Raises `InvalidTransition` if others use it now.
    """

    def __call__(self, *, request: "Request", by: User, at: datetime) -> None: ...


REOPENING_STEPS: Registry[ReopeningStep] = Registry(
    "opsportal.reopening_steps", settings.REOPENING_STEPS
)


def take_again(*, request: "Request", by: User, at: datetime) -> None:
    """Take what a rejected request gave back.

    Raises `InvalidTransition` if others use it now, or if a plugin cannot be loaded.
    """
    for name in REOPENING_STEPS.names():
        try:
            step = REOPENING_STEPS.get(name)
        except UnknownPlugin as error:
            raise InvalidTransition(
                f"{request} cannot be reopened: the plugin “{name}” cannot be loaded."
            ) from error
        step(request=request, by=by, at=at)
