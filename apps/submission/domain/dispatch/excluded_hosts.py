"""The excluded hosts that submitted jobs avoid, and the list that each submission was sent with.

The list is taken when the intent to submit is committed. It is stored with the options for the
scheduler (`Submission.asked`), or with the changes of a retry as its owner (`RetryJob.changes`),
and never becomes a part of what a later retry asks for.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from apps.clusters.models import Cluster
from apps.hosts.domain.avoided import hosts_to_avoid
from apps.submission.models import EXCLUDED_HOSTS, EXCLUSIONS_DROPPED


def with_excluded_hosts(
    stored: Mapping[str, Any], cluster: Cluster, *, at: datetime
) -> dict[str, Any]:
    """Return stored options with the hosts that are excluded now, instead of earlier ones.

    Jobs that ask for a single host, such as debug re-runs, avoid none.
    """
    options = _without(stored)
    if options.get("host"):
        return options
    avoided = hosts_to_avoid(cluster, at=at, besides=options.get("avoided_hosts", ()))
    if avoided.names:
        options[EXCLUDED_HOSTS] = list(avoided.names)
    if avoided.all_excluded:
        options[EXCLUSIONS_DROPPED] = True
    return options


def drop_excluded_hosts(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored options for a submission that the scheduler refused with its exclusions.

    The hosts that are left may not suit the jobs, so that they would never run.
    """
    return _without(stored) | {EXCLUSIONS_DROPPED: True}


def _without(stored: Mapping[str, Any]) -> dict[str, Any]:
    options = dict(stored)
    options.pop(EXCLUDED_HOSTS, None)
    options.pop(EXCLUSIONS_DROPPED, None)
    return options
