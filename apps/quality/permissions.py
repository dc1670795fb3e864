"""Who may run the checks of a request, post results of it, and waive what has not passed."""

from apps.accounts.models import Principal
from apps.production.domain.actors import may
from apps.production.enums import Actor
from apps.production.models import Request


def may_run(user: Principal, request: Request) -> bool:
    """Tell whether this person may have the checks run again."""
    return may(user, Actor.LIAISON, request) or may(user, Actor.OPERATOR, request)


def may_post(user: Principal, request: Request) -> bool:
    """Tell whether this person, or a tool with a token of that person, may post results: as for counts."""
    return may_run(user, request)


def may_waive(user: Principal, request: Request) -> bool:
    """Tell whether this person may waive: an approver who has neither made nor submitted the request."""
    return may(user, Actor.APPROVER, request)
