"""Permission to exclude hosts from new jobs."""

from apps.accounts.models import Principal
from apps.accounts.permissions import is_opg
from apps.core.errors import NotAllowed


def may_exclude_hosts(user: Principal) -> bool:
    """Return whether a user may exclude and return hosts, as approvers, shifters and admins may.

    A host runs jobs of all experiments, so a role for a single one is not enough.
    """
    return is_opg(user)


def require_host_role(user: Principal, action: str) -> None:
    """Raise `NotAllowed` unless the user may exclude hosts; `action` completes “can …”."""
    if not may_exclude_hosts(user):
        raise NotAllowed(f"Only shifters and approvers of the OPG can {action}.")
