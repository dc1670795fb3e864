"""The facts that checks may use besides the request; `fact_queries` collects them once for all rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

from apps.production.domain.estimates.figures import NO_ESTIMATE, Estimate
from apps.production.domain.outputs.datasets import Dataset


@dataclass(frozen=True)
class Window:
    """A planned downtime of a service."""

    title: str
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True)
class ServiceNow:
    """A service that a stage needs: its current state and planned downtimes."""

    name: str
    state: str
    windows: tuple[Window, ...] = ()


@dataclass(frozen=True)
class Offer:
    """The largest job that a cluster accepts; None where no limit is set."""

    cluster: str
    memory_bytes: int | None = None
    wall_seconds: int | None = None


@dataclass(frozen=True)
class Other:
    """Another submitted request of the experiment that was not rejected, cancelled or superseded."""

    key: str
    title: str = ""
    runs: Mapping[str, str] = field(default_factory=dict)
    first_seed: int | None = None
    jobs: int = 0
    configuration: str = ""
    release: str = ""


@dataclass(frozen=True)
class StageBefore:
    """How often earlier requests of the experiment used a stage name, and which services it needed."""

    requests: int = 0
    services: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Contact:
    """The author of the request, and whether they are still a liaison."""

    username: str
    is_liaison: bool


@dataclass(frozen=True)
class Facts:
    """Everything checks may know. Only the first two fields are always set; the others may be empty."""

    today: date
    services: frozenset[str]
    service_states: Mapping[str, ServiceNow] = field(default_factory=dict)
    offers: tuple[Offer, ...] = ()
    others: tuple[Other, ...] = ()
    #: The request that writes a dataset, by dataset name.
    written_by: Mapping[str, str] = field(default_factory=dict)
    #: None if the portal has no catalogue; a missing name is not in the catalogue.
    datasets: Mapping[str, Dataset] | None = None
    #: Datasets that the portal is about to define for this request, with the last error or an empty text.
    defining: Mapping[str, str] = field(default_factory=dict)
    #: Why the catalogue is unavailable; empty if it is not.
    catalogue_fault: str = ""
    #: This request's releases if all were used before; otherwise every release the experiment has used.
    releases: frozenset[str] = frozenset()
    #: By stage name in lower case.
    stages_before: Mapping[str, StageBefore] = field(default_factory=dict)
    contact: Contact | None = None
    #: When the release or configuration of a stage last changed, by stage position.
    changed_at: Mapping[int, datetime] = field(default_factory=dict)
    #: When a job of this request last completed, by stage name in lower case.
    completed_at: Mapping[str, datetime] = field(default_factory=dict)
    estimate: Estimate = NO_ESTIMATE
