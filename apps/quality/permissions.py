"""Permissions to run the checks of a request, post results, and waive results."""

from apps.accounts.models import Principal
from apps.production.domain.actors import may
from apps.production.enums import Actor
from apps.production.models import Request


def may_run(user: Principal, request: Request) -> bool:
    """Whether a user may run the checks again and post results, also by a tool with a token."""
    return may(user, Actor.LIAISON, request) or may(user, Actor.OPERATOR, request)


def may_waive(user: Principal, request: Request) -> bool:
    """Whether a user may waive: an approver who did not create, edit or submit the request."""
    return may(user, Actor.APPROVER, request)
