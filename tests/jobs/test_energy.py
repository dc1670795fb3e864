"""The energy of jobs: measured, or modelled from a file."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.core.checks import run_checks

from apps.clusters.models import Site
from apps.jobs.domain.records import energy
from apps.jobs.domain.records.energy import BadEnergyModel, energy_of, read_energy_model
from apps.jobs.models import Job

ENDED = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)
MODEL = {
    "watts_per_core": {"EPYC": 5},
    "memory_watts_per_gb": 0.5,
    "sites": {
        "FNAL": {"pue": 1.5, "grams_per_kwh": [100] * 11 + [400] + [100] * 12},
        "*": {"pue": 2},
    },
}


@pytest.fixture
def use(settings, tmp_path):
    """Return a function that puts a model in use, given as JSON or as text."""

    def put(model) -> None:
        path = tmp_path / "energy.json"
        path.write_text(model if isinstance(model, str) else json.dumps(model))
        settings.ENERGY_MODEL = path
        energy._model_in.cache_clear()

    yield put
    energy._model_in.cache_clear()


def job(*, site="FNAL", **values) -> Job:
    """Four cores for two hours, half of their time used, with 10 GB of memory."""
    fields = {
        "cpus": 4,
        "wall_seconds": 7_200,
        "cpu_seconds": 14_400.0,
        "requested_memory_bytes": 10 * 10**9,
        "cpu_model": "EPYC",
        "started_at": ENDED - timedelta(hours=2),
        "ended_at": ENDED,
        "site": Site(name=site) if site else None,
    }
    return Job(**fields | values)


def test_energy_is_that_of_cores_and_memory(use):
    use(MODEL)
    shown = energy_of(job())
    # 14,400 s × 5 W, and 10 GB × 0.5 W × 7,200 s.
    assert shown.joules == pytest.approx(72_000 + 36_000)
    assert shown.is_modelled
    assert shown.pue == 1.5
    assert shown.site_joules == pytest.approx(162_000)
    # The middle of the job is 11:30: 0.045 kWh of 400 g.
    assert shown.carbon_grams == pytest.approx(18)


def test_cpu_time_above_that_of_the_cores_counts_as_all_of_it(use):
    use(MODEL)
    shown = energy_of(job(cpu_seconds=10**9, requested_memory_bytes=None))
    assert shown.joules == pytest.approx(4 * 7_200 * 5)


def test_what_was_measured_is_not_modelled(use):
    use(MODEL)
    shown = energy_of(job(energy_joules=3_600_000))
    assert (shown.joules, shown.is_modelled) == (3_600_000, False)
    assert shown.carbon_grams == pytest.approx(600)


def test_other_sites_have_the_figures_of_any_site(use):
    use(MODEL)
    for site in ("CERN", None):
        shown = energy_of(job(site=site))
        assert (shown.pue, shown.carbon_grams) == (2, None)


@pytest.mark.parametrize(
    "values", [{"cpu_model": "unknown"}, {"wall_seconds": 0, "started_at": None}, {"cpus": 0}]
)
def test_without_figures_there_is_no_energy(use, values):
    use(MODEL)
    assert energy_of(job(**values)) is None


def test_a_default_is_for_all_other_models(use):
    use(MODEL | {"default_watts_per_core": 10})
    shown = energy_of(job(cpu_model="", requested_memory_bytes=None))
    assert shown.joules == pytest.approx(144_000)


def test_without_a_file_only_measured_energy_is_known(settings):
    settings.ENERGY_MODEL = None
    assert energy_of(job()) is None
    shown = energy_of(job(energy_joules=7))
    assert (shown.joules, shown.is_modelled, shown.pue, shown.carbon_grams) == (
        7,
        False,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"sites": {}\n"watts_per_core": {}}', "line 2: "),
        ("[]", "the file: "),
        ('{"watts": {}}', "watts: "),
        ('{"watts_per_core": {"EPYC": -1}}', "watts_per_core.EPYC: "),
        ('{"sites": {"FNAL": {"pue": 0.9}}}', "sites.FNAL.pue: "),
        ('{"sites": {"FNAL": {"grams_per_kwh": [1, 2]}}}', "sites.FNAL.grams_per_kwh"),
    ],
)
def test_a_mistake_is_named_and_costs_nothing_else(use, settings, text, said):
    use(text)
    with pytest.raises(BadEnergyModel, match=r"energy\.json") as raised:
        read_energy_model(settings.ENERGY_MODEL)
    assert said in str(raised.value)
    assert any(said in warning.msg for warning in run_checks())
    assert energy_of(job()) is None
    assert energy_of(job(energy_joules=7)).joules == 7


def test_a_file_that_is_gone_is_named(settings, tmp_path):
    with pytest.raises(BadEnergyModel, match="No such file"):
        read_energy_model(tmp_path / "gone.json")
