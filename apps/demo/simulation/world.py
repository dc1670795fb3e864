"""What the simulated cluster is made of: campaigns, stages, hosts, users. Data, no behaviour."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

HOUR = 3600
GIB = 1024**3
DOMAIN = "sim.example.org"

SAMWEB, DCACHE, CVMFS, CONDITIONS, NODES = "samweb", "dcache", "cvmfs", "conditions-db", "farm"


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a job: its name, its usual length, and the services that it fails without."""

    name: str
    seconds: int
    needs: tuple[str, ...] = ()


def _phases(setup: int, fetch: int, payload: str, seconds: int, *payload_needs: str) -> tuple[Phase, ...]:
    first = (Phase("fetch input", fetch, (SAMWEB, DCACHE)),) if fetch else ()
    return (
        Phase("setup", setup, (CVMFS,)),
        *first,
        Phase(payload, seconds, payload_needs),
        Phase("store output", 90, (DCACHE,)),
        Phase("declare output", 20, (SAMWEB,)),
    )


STAGES: dict[str, tuple[Phase, ...]] = {
    "generation": _phases(25, 0, "generation", 1_400),
    "simulation": _phases(30, 120, "simulation", 4_200, CONDITIONS),
    "reconstruction": _phases(30, 180, "reconstruction", 2_700, CONDITIONS),
    "keep-up": _phases(25, 150, "keep-up", 1_500, CONDITIONS),
    "merge": _phases(20, 240, "merge", 500),
    "analysis": _phases(20, 90, "analysis", 900),
}


def needs_of(kind: str) -> list[str]:
    """Return the services that a stage of this kind needs, in the order in which it meets them."""
    return list(dict.fromkeys(service for phase in STAGES[kind] for service in phase.needs))


@dataclass(frozen=True, slots=True)
class Campaign:
    """A stream of alike jobs: one stage of a request, or what a user runs for himself.

    `flaw` is what is wrong with its release: `memory`, `crash`, `slow` or nothing.
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
    limit_seconds: int = 4 * 3600
    array: int = 20
    flaw: str = ""
    flaw_rate: float = 0.0

    @property
    def name(self) -> str:
        """The job's name, as people see it in the queue."""
        return f"{self.experiment.lower()}-{self.stage}"

    def running(self, stage: str, kind: str, config: str, weight: float, **values: Any) -> "Campaign":
        """Return the same for another stage."""
        return replace(self, stage=stage, kind=kind, config=config, weight=weight, **values)


_NOVA = Campaign("NOVA", "", "", "v09_72", "", "novapro", 1.0, "NOVA-0001")
_DUNE = Campaign("DUNE", "", "", "v10_04", "", "dunepro", 1.0, "DUNE-0001")
_MU2E = Campaign("MU2E", "", "", "v11_02", "", "mu2epro", 1.0, "MU2E-0001")

#: What runs where no other campaigns are given.
CAMPAIGNS = (
    _NOVA.running("generation", "generation", "genie_fd.fcl", 1.6, release="v09_71", memory_mb=1_500),
    _NOVA.running("simulation", "simulation", "g4_fd.fcl", 1.6, release="v09_71", memory_mb=2_500),
    _NOVA.running("reco", "reconstruction", "prod_reco.fcl", 2.4, memory_mb=3_000, flaw="memory", flaw_rate=0.02),
    _NOVA.running("merge", "merge", "concat.fcl", 0.4, array=4),
    _DUNE.running("keep-up", "keep-up", "keepup_decode.fcl", 2.0, memory_mb=4_000, array=8),
    _DUNE.running("merge", "merge", "merge_hist.fcl", 0.5, array=4),
    _MU2E.running("generation", "generation", "cry_background.fcl", 1.4, flaw="crash", flaw_rate=0.03),
    _MU2E.running("simulation", "simulation", "ce_digi.fcl", 1.0, release="v11_01", flaw="slow", flaw_rate=0.02),
    _NOVA.running("analysis", "analysis", "numu_spectra.fcl", 0.3, array=6, user="mkowalska", request=""),
    _DUNE.running("analysis", "analysis", "pandora_ana.fcl", 0.3, array=6, user="tlindqvist", request=""),
    _MU2E.running("analysis", "analysis", "tracker_ana.fcl", 0.3, array=6, user="rferreira", request=""),
)

CPU_MODELS = (
    "AMD EPYC 7543 32-Core Processor",
    "Intel(R) Xeon(R) Gold 6330 CPU @ 2.00GHz",
    "AMD EPYC 9654 96-Core Processor",
)
RACKS, HOSTS_PER_RACK = 4, 20
HOSTS = tuple(f"wn-{100 * (rack + 1) + number:04d}" for rack in range(RACKS) for number in range(1, HOSTS_PER_RACK + 1))


def rack_of(host: str) -> int:
    """Return the number of the rack that a host stands in, from 0."""
    return int(host.removeprefix("wn-")) // 100 - 1


def cpu_of(host: str) -> str:
    """Return the processor model of a host; a rack has one model."""
    return CPU_MODELS[rack_of(host) % len(CPU_MODELS)]


def read_campaigns(path: Path) -> tuple[Campaign, ...]:
    """Read campaigns from a JSON file, as `write_campaigns` leaves it."""
    return tuple(Campaign(**values) for values in json.loads(path.read_text(encoding="utf-8")))


def write_campaigns(path: Path, campaigns: tuple[Campaign, ...]) -> None:
    """Write campaigns, so that a reader sees the old file or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(campaign) for campaign in campaigns], indent=1)
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
