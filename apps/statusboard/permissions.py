"""Permissions to edit the status board."""

from apps.accounts.models import User
from apps.accounts.permissions import is_opg
from apps.core.errors import NotAllowed


def may_run_board(user: User) -> bool:
    """Return whether the user may edit the board.

    That is to report incidents, schedule maintenance, post announcements, and connect monitoring.
    The first admin, a superuser without a role, may do so, too.
    """
    return is_opg(user) or (user.is_active and user.is_superuser)


def require_board_role(user: User, action: str) -> None:
    """Raise `NotAllowed` unless the user may edit the board; `action` completes “can …”."""
    if not may_run_board(user):
        raise NotAllowed(f"Only shifters and approvers of the OPG can {action}.")
