"""Who may write on the status board."""

from typing import Any

from apps.accounts.permissions import is_shifter


def may_run_board(user: Any) -> bool:
    """Tell whether the person may report incidents, plan windows, post announcements and map alerts."""
    return is_shifter(user)
