"""Who may edit the status board."""

from apps.accounts.models import User
from apps.accounts.permissions import is_shifter


def may_run_board(user: User) -> bool:
    """Whether the user may report incidents, schedule maintenance, post announcements and map alerts."""
    return is_shifter(user)
