"""Check unreviewed expressions of known errors and packs, all within one time budget."""

from collections.abc import Sequence

from apps.accounts.models import Principal, User
from apps.core.domain.expressions.runs import expression_run
from apps.diagnosis.engine.evidence.catalogue import regex_faults, set_fault

CHECK_SECONDS = 2.0
#: Compiling the whole catalogue takes 0.2 s on an idle host.
SET_SECONDS = 5.0


def expression_faults(expressions: Sequence[tuple[str, str | None]], *, by: Principal) -> list[str]:
    """Return why each expression cannot be used, "" if it can.

    The second item of a pair is an example that the expression must match. Raises `TooCostly` if
    all checks together take too long.
    """
    if not expressions:
        return []
    with expression_run(_user_id(by), seconds=CHECK_SECONDS) as run:
        return run.call(regex_faults, list(expressions))


def catalogue_fault(expressions: Sequence[str], *, by: Principal) -> str:
    """Return why all enabled expressions do not compile together, "" if they do.

    Raises `TooCostly` if that takes too long.
    """
    with expression_run(_user_id(by), seconds=SET_SECONDS) as run:
        return run.call(set_fault, list(expressions))


def _user_id(by: Principal) -> int | None:
    return by.pk if isinstance(by, User) else None
