"""Check the expressions of known errors and packs before anyone has reviewed them: all together,
within one budget.
"""

from collections.abc import Sequence

from apps.accounts.models import Principal, User
from apps.core.domain.expression_runs import expression_run
from apps.diagnosis.engine.catalogue import regex_faults, set_fault

CHECK_SECONDS = 2.0
#: To compile the whole catalogue takes 0.2 s where nothing else runs.
SET_SECONDS = 5.0


def expression_faults(expressions: Sequence[tuple[str, str | None]], *, by: Principal) -> list[str]:
    """Return why each expression cannot be used, "" if it can.

    The second of a pair is an example, which it must match.

    Raises `TooCostly` if they take too long together.
    """
    if not expressions:
        return []
    with expression_run(_user_id(by), seconds=CHECK_SECONDS) as run:
        return run.call(regex_faults, list(expressions))


def catalogue_fault(expressions: Sequence[str], *, by: Principal) -> str:
    """Return why the expressions of all enabled known errors do not compile together,
    "" if they do.

    Raises `TooCostly` if that takes too long.
    """
    with expression_run(_user_id(by), seconds=SET_SECONDS) as run:
        return run.call(set_fault, list(expressions))


def _user_id(by: Principal) -> int | None:
    return by.pk if isinstance(by, User) else None
