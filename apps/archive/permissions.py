"""Permissions to see the environment of an archived job, and to choose between captures."""

from typing import TYPE_CHECKING

from apps.accounts.enums import Role
from apps.accounts.models import User
from apps.accounts.permissions import scope_of

if TYPE_CHECKING:
    from apps.archive.models import ArchivedJob

#: Roles for an experiment that open the environments of its jobs. A shifter of one experiment sees
#: scripts alone.
ENVIRONMENT_ROLES = (Role.LIAISON, Role.APPROVER, Role.ADMIN)


def sees_environment(user: User, job: "ArchivedJob") -> bool:
    """Return whether a user who sees the job may see its environment.

    Liaisons, approvers and admins may. The job's owner needs such a role too: an environment holds
    what the site and the experiment put there.
    """
    scope = scope_of(user)
    if scope.sees_all:
        return True
    return job.experiment_id is not None and any(
        scope.has(role, job.experiment_id) for role in ENVIRONMENT_ROLES
    )


def may_choose_capture(user: User, job: "ArchivedJob") -> bool:
    """Return whether the user may choose this capture of a job.

    Approvers and admins may, of all experiments or of the job's.
    """
    scope = scope_of(user)
    return any(scope.has(role, job.experiment_id) for role in (Role.APPROVER, Role.ADMIN))
