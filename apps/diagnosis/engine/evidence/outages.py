"""Match known errors with outages of the services that the job needs, by service name."""

import re
from collections.abc import Sequence

from apps.diagnosis.engine.base import Outage, Pattern
from apps.diagnosis.enums import Category, Overlap, Role

# Names of one service in error messages: a dCache door may report as xrootd, SRM or GridFTP.
FAMILIES = (
    frozenset({"dcache", "eos", "xrootd", "srm", "gridftp", "storage"}),
    frozenset({"samweb", "sam", "ifdh"}),
    frozenset({"frontier", "squid", "conditions"}),
    frozenset({"condor", "htcondor", "jobsub"}),
)
ANY_SERVICE = frozenset({"http", "network"})


def outage_of(pattern: Pattern, outages: Sequence[Outage]) -> Outage | None:
    """Return the first outage of the service that a known error refers to; None if there is none.

    An error of no particular service (http, network) matches any outage.
    """
    for outage in outages:
        if outage.overlap is Overlap.YES and _is_about(pattern, outage.service):
            return outage
    return None


def _is_about(pattern: Pattern, service: str) -> bool:
    if pattern.role is Role.GENERIC and pattern.service in ANY_SERVICE:
        return pattern.category in {Category.SERVICE, Category.SITE}
    name_parts = set(re.split(r"[^a-z0-9]+", service.lower()))
    names = {pattern.service.lower()}.union(
        *(family for family in FAMILIES if pattern.service in family)
    )
    return service.lower() == pattern.service.lower() or bool(name_parts & names)
