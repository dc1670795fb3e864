"""Brings a known error and the outages of a job's services together by the names of services."""

import re
from collections.abc import Sequence

from apps.diagnosis.engine.base import Outage, Pattern, Reason
from apps.diagnosis.enums import Category, Overlap, ReasonKind, Role

# Names under which one service fails: a door of dCache answers as xrootd, SRM or GridFTP.
FAMILIES = (
    frozenset({"dcache", "eos", "xrootd", "srm", "gridftp", "storage"}),
    frozenset({"samweb", "sam", "ifdh"}),
    frozenset({"frontier", "squid", "conditions"}),
    frozenset({"condor", "htcondor", "jobsub"}),
)
ANY_SERVICE = frozenset({"http", "network"})


def outage_of(pattern: Pattern, outages: Sequence[Outage]) -> Outage | None:
    """Return the first outage during the job of the service that a known error is about.

    An error that names no service (http, network) goes with any.
    """
    for outage in outages:
        if outage.overlap is Overlap.YES and _is_about(pattern, outage.service):
            return outage
    return None


def _is_about(pattern: Pattern, service: str) -> bool:
    if pattern.role is Role.GENERIC and pattern.service in ANY_SERVICE:
        return pattern.category in {Category.SERVICE, Category.SITE}
    words = set(re.split(r"[^a-z0-9]+", service.lower()))
    names = {pattern.service.lower()}.union(*(family for family in FAMILIES if pattern.service in family))
    return service.lower() == pattern.service.lower() or bool(words & names)


def reason(outage: Outage) -> Reason:
    """Tell in one sentence that a service was out, or that it is not known; one that was not gives no reason."""
    words = {
        Overlap.YES: f"{outage.service} was out while this job ran",
        Overlap.UNKNOWN: f"Whether {outage.service} was out while this job ran is not known",
    }
    detail = f": {outage.text}" if outage.text else ""
    return Reason(ReasonKind.OUTAGE, words[outage.overlap] + detail, f"service:{outage.service}")
