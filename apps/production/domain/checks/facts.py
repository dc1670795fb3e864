"""What a check may know besides the request. Gathered once for all of them by `production.gathering`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

from apps.production.domain.estimates import NO_ESTIMATE, Estimate
from apps.production.domain.outputs.datasets import Dataset


@dataclass(frozen=True)
class Window:
    """A planned downtime of a service."""

    title: str
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True)
class ServiceNow:
    """A service that a stage needs: how it is now, and its planned downtimes."""

    name: str
    state: str
    windows: tuple[Window, ...] = ()


@dataclass(frozen=True)
class Offer:
    """The largest job that a cluster takes; None where nobody said."""

    cluster: str
    memory_bytes: int | None = None
    wall_seconds: int | None = None


@dataclass(frozen=True)
class Other:
    """Another request of the experiment that was submitted and not given up."""

    key: str
    title: str = ""
    runs: Mapping[str, str] = field(default_factory=dict)
    first_seed: int | None = None
    jobs: int = 0
    configuration: str = ""
    release: str = ""


@dataclass(frozen=True)
class StageBefore:
    """What earlier requests of the experiment say of their stages of one name."""

    requests: int = 0
    services: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Contact:
    """Who answers for the request, and whether that person still may."""

    username: str
    is_liaison: bool


@dataclass(frozen=True)
class Facts:
    """All of it. The first two are always there; the rest stays empty where it is not known or not asked for."""

    today: date
    services: frozenset[str]
    service_states: Mapping[str, ServiceNow] = field(default_factory=dict)
    offers: tuple[Offer, ...] = ()
    others: tuple[Other, ...] = ()
    #: The request that writes a dataset, by the dataset's name.
    written_by: Mapping[str, str] = field(default_factory=dict)
    #: None where the portal has no catalogue; a name that is missing is not in the catalogue.
    datasets: Mapping[str, Dataset] | None = None
    #: Datasets that the portal is about to define for this request, with why it could not yet.
    defining: Mapping[str, str] = field(default_factory=dict)
    #: Why the catalogue could not be asked.
    catalogue_fault: str = ""
    #: Those of this request's that earlier ones of the experiment have used, and all others if one of its own is new.
    releases: frozenset[str] = frozenset()
    #: By the stage's name in small letters.
    stages_before: Mapping[str, StageBefore] = field(default_factory=dict)
    contact: Contact | None = None
    #: When release or configuration of a stage were last changed, by the stage's position.
    changed_at: Mapping[int, datetime] = field(default_factory=dict)
    #: When a job of this request last completed, by the name of its stage in small letters.
    completed_at: Mapping[str, datetime] = field(default_factory=dict)
    estimate: Estimate = NO_ESTIMATE
