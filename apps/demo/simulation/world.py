"""The simulated cluster's stages, campaigns and hosts from `world.yaml`, and its randomness."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import yaml
from pydantic import TypeAdapter

HOUR = 3600
DAY = 24 * HOUR
DOMAIN = "sim.example.org"
SAMWEB = "samweb"
NODES = "farm"


@dataclass(frozen=True, slots=True)
class WorldPhase:
    """A part of a job: its name, usual duration, and the services that it needs."""

    name: str
    seconds: int
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorldCampaign:
    """A stream of similar jobs: one stage of a request, or the private jobs of a user.

    `flaw` is the flaw of its release: `memory`, `crash`, `slow` or nothing.
    """

    experiment: str
    stage: str
    kind: str
    release: str
    config: str
    user: str
    weight: float
    request: str = ""
    memory_mb: int = 2_000
    avoided_hosts: tuple[str, ...] = ()
    limit_seconds: int = 4 * HOUR
    array: int = 20
    flaw: str = ""
    flaw_rate: float = 0.0

    @property
    def name(self) -> str:
        """The name of its jobs in the queue."""
        return f"{self.experiment.lower()}-{self.stage}"

    @property
    def values(self) -> dict[str, Any]:
        """The values for the templates of scripts and logs."""
        names = {
            "experiment": self.experiment.lower(),
            "experiment_key": self.experiment,
            "domain": DOMAIN,
        }
        return asdict(self) | names


@dataclass(frozen=True)
class ServiceOutages:
    """How often a service fails relative to others, and the summary of its alerts."""

    weight: int
    summary: str


@dataclass(frozen=True)
class _World:
    stages: dict[str, tuple[WorldPhase, ...]]
    campaigns: tuple[WorldCampaign, ...]
    cpu_models: tuple[str, ...]
    racks: int
    hosts_per_rack: int
    outages: dict[str, ServiceOutages]


_WORLD = TypeAdapter(_World).validate_python(
    yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
)
_CAMPAIGNS = TypeAdapter(tuple[WorldCampaign, ...])
STAGES = _WORLD.stages
RACKS = _WORLD.racks
OUTAGES = _WORLD.outages
#: The campaigns of a simulation without a `campaigns.json`.
CAMPAIGNS = _WORLD.campaigns


def _name_hosts(racks: int, hosts_per_rack: int) -> tuple[str, ...]:
    names = []
    for rack in range(1, racks + 1):
        names += [f"wn-{100 * rack + number:04d}" for number in range(1, hosts_per_rack + 1)]
    return tuple(names)


HOSTS = _name_hosts(RACKS, _WORLD.hosts_per_rack)


def rack_of(host: str) -> int:
    """Return the number of a host's rack, from 0."""
    return int(host.removeprefix("wn-")) // 100 - 1


def cpu_of(host: str) -> str:
    """Return the CPU model of a host; a rack has one model."""
    return _WORLD.cpu_models[rack_of(host) % len(_WORLD.cpu_models)]


def random_of(seed: int, *names: object) -> Random:
    """Return a random generator that is always the same for the same seed and names."""
    return Random("/".join(map(str, (seed, *names))))  # noqa: S311


def read_campaigns(path: Path) -> tuple[WorldCampaign, ...]:
    """Read campaigns from a JSON file written by `write_campaigns`."""
    return _CAMPAIGNS.validate_json(path.read_bytes())


def write_campaigns(path: Path, campaigns: tuple[WorldCampaign, ...]) -> None:
    """Write campaigns as JSON."""
    replace_file(path, _CAMPAIGNS.dump_json(campaigns, indent=1))


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically: readers see either the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)
