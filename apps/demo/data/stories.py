"""What becomes of the demo's requests: who did what, how many hours ago. Data for `requests`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any

from apps.demo.simulation.world import Campaign, needs_of
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.enums import Verb

GB = 1_000_000_000
HOUR = 3600


@dataclass(frozen=True)
class Step:
    """One thing that somebody did: a verb, an edit of the draft, or a new priority."""

    hours_ago: float
    by: str
    verb: Verb | None = None
    reason: str = ""
    edit: Mapping[str, Mapping[str, Any]] | None = None
    priority: int | None = None
    priority_class: str | None = None


@dataclass(frozen=True)
class Story:
    """A request from its draft on; `campaigns` are the stages that the simulated cluster runs for it."""

    experiment: str
    by: str
    hours_ago: float
    due_in_days: int
    content: RequestContent
    steps: tuple[Step, ...] = ()
    campaigns: tuple[Campaign, ...] = field(default=())

    def written(self, today: date) -> RequestContent:
        """Return the content with its deadline."""
        return replace(self.content, deadline=today + timedelta(days=self.due_in_days))


def _stage(name: str, kind: str, release: str, configuration: str, **values: Any) -> StageContent:
    fields = {"events": 10_000_000, "jobs": 20_000, "memory_bytes": 3 * GB, "wall_seconds": 4 * HOUR}
    return StageContent(
        name=name,
        release=release,
        configuration=configuration,
        **(fields | {"output_dataset": f"prod_{release}_{name}_2026", "services": tuple(needs_of(kind))} | values),
    )


def _submitted(hours_ago: float, by: str) -> Step:
    return Step(hours_ago, by, Verb.SUBMIT)


def _approved(hours_ago: float, level: str, reason: str, by: str = "approver") -> tuple[Step, ...]:
    name, number = level.split()
    return (
        Step(hours_ago, by, Verb.APPROVE),
        Step(hours_ago - 0.2, by, priority=int(number), priority_class=name, reason=reason),
    )


def _started(hours_ago: float, level: str, reason: str, by: str = "approver") -> tuple[Step, ...]:
    """Approved, and in production a little later."""
    return (*_approved(hours_ago, level, reason, by), Step(hours_ago - 0.5, "shifter", Verb.START))


_NOVA = Campaign("NOVA", "", "", "v09_72", "", "novapro", 1.0)
_DUNE = Campaign("DUNE", "", "", "v10_04", "", "dunepro", 1.0)
_MU2E = Campaign("MU2E", "", "", "v11_02", "", "mu2epro", 1.0)

BEAM = Story(
    "NOVA", "liaison", 130, 21,
    RequestContent(
        title="Far detector beam simulation 2026",
        purpose="Signal sample for the December analysis freeze. The oscillation group waits for it.",
        requested_priority="high",
        priority_reason="The analysis freeze is on 12 December.",
        stages=(
            _stage("generation", "generation", "v09_71", "genie_fd.fcl", memory_bytes=2 * GB),
            _stage("simulation", "simulation", "v09_71", "g4_fd.fcl"),
            _stage("reco", "reconstruction", "v09_70", "prod_reco.fcl"),
            _stage("merge", "merge", "v09_72", "concat.fcl", jobs=2_500, memory_bytes=2 * GB),
        ),
    ),
    (
        _submitted(126, "liaison"),
        Step(120, "approver", Verb.REQUEST_CHANGES, "Reconstruction v09_70 loses slices at the edge: take v09_72."),
        Step(118, "liaison", edit={"reco": {"release": "v09_72"}}),
        _submitted(117.9, "liaison"),
        *_started(100, "high 7", "The analysis freeze of December."),
    ),
    (
        _NOVA.running("generation", "generation", "genie_fd.fcl", 1.2, release="v09_71", memory_mb=2_000),
        _NOVA.running("simulation", "simulation", "g4_fd.fcl", 1.6, release="v09_71", memory_mb=3_000),
        _NOVA.running("reco", "reconstruction", "prod_reco.fcl", 2.4, memory_mb=3_000, flaw="memory", flaw_rate=0.02),
        _NOVA.running("merge", "merge", "concat.fcl", 0.4, array=4),
    ),
)  # fmt: skip

KEEP_UP = Story(
    "DUNE", "dune-liaison", 150, 60,
    RequestContent(
        title="ProtoDUNE keep-up processing, autumn",
        purpose="Decode and reconstruct the raw data of the day, so that the shift sees the detector.",
        stages=(
            _stage("keep-up", "keep-up", "v10_04", "keepup_decode.fcl", input_dataset="protodune_raw_2026",
                   events=5_000_000, jobs=12_000, memory_bytes=4 * GB),
            _stage("merge", "merge", "v10_04", "merge_hist.fcl", events=5_000_000, jobs=3_000, memory_bytes=2 * GB),
        ),
    ),
    (_submitted(149, "dune-liaison"), *_started(140, "normal 7", "Keep-up follows data taking.", "approver-two")),
    (
        _DUNE.running("keep-up", "keep-up", "keepup_decode.fcl", 2.0, memory_mb=4_000, array=8),
        _DUNE.running("merge", "merge", "merge_hist.fcl", 0.5, array=4),
    ),
)  # fmt: skip

COSMICS = Story(
    "MU2E", "mu2e-liaison", 110, 40,
    RequestContent(
        title="CRY cosmic background, straw tracker",
        purpose="Background for the sensitivity update; replaces the sample of spring.",
        stages=(
            _stage("generation", "generation", "v11_02", "cry_background.fcl", events=20_000_000, jobs=20_000,
                   memory_bytes=2 * GB),
            _stage("simulation", "simulation", "v11_01", "ce_digi.fcl", events=20_000_000, jobs=20_000),
        ),
    ),
    (_submitted(108, "mu2e-liaison"), *_started(90, "normal 5", "Normal, behind keep-up.")),
    (
        _MU2E.running("generation", "generation", "cry_background.fcl", 1.4, flaw="crash", flaw_rate=0.03),
        _MU2E.running("simulation", "simulation", "ce_digi.fcl", 1.0, release="v11_01", flaw="slow", flaw_rate=0.02),
    ),
)  # fmt: skip

CALIBRATION = Story(
    "NOVA", "nova-second", 700, 14,
    RequestContent(
        title="Near detector calibration muons",
        purpose="Attenuation fit of the autumn calibration.",
        stages=(
            _stage("reco", "reconstruction", "v09_68", "calib_reco.fcl", input_dataset="nd_cosmics_raw", jobs=800),
        ),
    ),
    (
        _submitted(690, "nova-second"),
        *_started(680, "normal 6", "Small, and needed first."),
        Step(402, "shifter", Verb.COMPLETE),
        Step(401, "shifter", Verb.REVIEW),
        Step(400, "approver", Verb.DONE, "All 800 files are declared."),
    ),
)  # fmt: skip

LOW_ENERGY = Story(
    "NOVA", "nova-second", 400, 10,
    RequestContent(
        title="Low energy electron sample",
        purpose="Efficiency of the electron selection below 1 GeV.",
        stages=(
            _stage("generation", "generation", "v09_72", "gun_electron.fcl", events=400_000, jobs=200,
                   memory_bytes=2 * GB),
            _stage("simulation", "simulation", "v09_72", "g4_fd.fcl", events=400_000, jobs=200),
        ),
    ),
    (
        _submitted(390, "nova-second"),
        *_started(380, "normal 5", "Small."),
        Step(100, "shifter", Verb.COMPLETE),
        Step(99, "shifter", Verb.REVIEW),
    ),
)  # fmt: skip

ROCK_MUONS = Story(
    "NOVA", "liaison", 50, 30,
    RequestContent(
        title="Near detector rock muons, 2026 beam",
        purpose="Overlay of rock muons for the cross-section analysis.",
        stages=(
            _stage("generation", "generation", "v09_72", "genie_rock.fcl", events=20_000_000, memory_bytes=2 * GB),
            _stage("simulation", "simulation", "v09_72", "g4_nd.fcl", events=20_000_000),
            _stage("reco", "reconstruction", "v09_72", "prod_reco.fcl", events=20_000_000),
        ),
    ),
    (
        _submitted(46, "liaison"),
        Step(2, "approver", Verb.REQUEST_CHANGES, "8 % of such jobs needed more than 3 GB: ask for 4 GB in reco."),
    ),
)  # fmt: skip

SUPERNOVA = Story(
    "DUNE", "dune-liaison", 26, 20,
    RequestContent(
        title="Supernova burst, trigger study",
        purpose="Trigger efficiency for three neutrino spectra; the trigger review waits for it.",
        requested_priority="high",
        priority_reason="The trigger review is on 15 December.",
        stages=(
            _stage("generation", "generation", "v10_04", "marley_burst.fcl", events=300_000, jobs=600,
                   memory_bytes=2 * GB),
            _stage("simulation", "simulation", "v10_04", "g4_1x2x6.fcl", events=300_000, jobs=600,
                   memory_bytes=4 * GB),
        ),
    ),
    (_submitted(25, "dune-liaison"),),
)  # fmt: skip

VETO = Story(
    "MU2E", "mu2e-liaison", 20, 45,
    RequestContent(
        title="Cosmic ray veto, inefficiency with gaps",
        purpose="Geometry variation for the veto's performance note.",
        stages=(
            _stage("simulation", "simulation", "v11_02", "crv_gaps.fcl", input_dataset="cry_spring_2026", jobs=1_200),
            _stage("reco", "reconstruction", "v11_02", "crv_reco.fcl", jobs=1_200),
        ),
    ),
    (_submitted(18, "mu2e-liaison"),),
)  # fmt: skip

#: Approve it, and the portal sends it to the simulated cluster, where a service is out at first.
ALIGNMENT = Story(
    "MU2E", "mu2e-liaison", 6, 10,
    RequestContent(
        title="Straw tracker alignment, cosmic tracks",
        purpose="A small sample, to see whether the alignment of the autumn holds.",
        stages=tuple(
            _stage(name, name, "v11_02", f"align_{name}.fcl", events=60_000, jobs=30, memory_bytes=2 * GB,
                   services=("cvmfs",))
            for name in ("generation", "simulation", "reconstruction")
        ),
    ),
    (_submitted(5, "mu2e-liaison"),),
)  # fmt: skip

ELECTRONS = Story(
    "NOVA", "nova-second", 70, 50,
    RequestContent(
        title="Neutrino–electron scattering sample",
        purpose="Constraint of the flux; for the spring conferences.",
        stages=(
            _stage("generation", "generation", "v09_72", "nuone.fcl", events=1_000_000, jobs=500, memory_bytes=2 * GB),
            _stage("simulation", "simulation", "v09_72", "g4_nd.fcl", events=1_000_000, jobs=500),
        ),
    ),
    (_submitted(66, "nova-second"), *_approved(44, "low 5", "After the samples of the December freeze.")),
)  # fmt: skip

DRAFT = Story(
    "NOVA", "liaison", 5, 35,
    RequestContent(
        title="Light level systematics",
        purpose="",
        stages=(_stage("reco", "reconstruction", "v09_72", "prod_reco_light.fcl", input_dataset="fd_genie_2026"),),
    ),
)  # fmt: skip

TWICE = Story(
    "DUNE", "dune-liaison", 300, 30,
    RequestContent(
        title="ProtoDUNE beam sample, second copy",
        purpose="Another copy with other seeds.",
        stages=(_stage("generation", "generation", "v10_03", "protodune_beam.fcl", jobs=1_000),),
    ),
    (
        _submitted(296, "dune-liaison"),
        Step(280, "approver", Verb.REJECT, "The same sample is in DUNE's catalogue since July: use that."),
    ),
)  # fmt: skip

OLD_FIELD = Story(
    "MU2E", "mu2e-liaison", 260, 30,
    RequestContent(
        title="Conversion electrons, old field map",
        purpose="Comparison with the field map of 2024.",
        stages=(
            _stage("simulation", "simulation", "v11_00", "ce_oldfield.fcl", input_dataset="ce_gen_2025", jobs=300),
        ),
    ),
    (
        _submitted(255, "mu2e-liaison"),
        Step(240, "mu2e-liaison", Verb.CANCEL, "The new field map is validated: not needed any more."),
    ),
)  # fmt: skip

STORIES = (
    CALIBRATION, LOW_ENERGY, TWICE, OLD_FIELD, KEEP_UP, BEAM, COSMICS, ELECTRONS, ROCK_MUONS, SUPERNOVA, VETO,
    ALIGNMENT, DRAFT,
)  # fmt: skip
