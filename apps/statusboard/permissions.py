"""Who may write on the status board."""

from apps.accounts.models import User
from apps.accounts.permissions import is_shifter


def may_run_board(user: User) -> bool:
    """Tell whether the person may report incidents, plan windows, post announcements and map alerts."""
    return is_shifter(user)
