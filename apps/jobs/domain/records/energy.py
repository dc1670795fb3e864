"""The energy that a job used: measured by its scheduler, or else modelled.

The model is that of Green Algorithms (L. Lannelongue, J. Grealey, M. Inouye, Adv. Sci. 8, 2100707,
2021): wall time × (cores × power of a core × CPU efficiency + memory × its power). The power of
cores by CPU model, and the figures of sites, are those of the file `ENERGY_MODEL`. GPUs are not
modelled.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from django.conf import settings
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apps.core.domain.quantities import JOULES_PER_KWH
from apps.core.errors import DomainError
from apps.jobs.models import Job

log = logging.getLogger(__name__)

GIGABYTE = 10**9
#: The power of memory in Green Algorithms, in watts per gigabyte.
MEMORY_WATTS_PER_GB = 0.3725
#: What holds for all sites without figures of their own.
ANY_SITE = "*"

Watts = Annotated[float, Field(gt=0, le=1_000)]
Grams = Annotated[float, Field(ge=0, le=5_000)]
GramsByHour = Annotated[list[Grams], Field(min_length=24, max_length=24)]


class BadEnergyModel(DomainError):
    """The file of the model cannot be used; the message names the file and the place in it."""


class SitePower(BaseModel):
    """What a site needs beside its hosts, and how its electricity is made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: Power usage effectiveness: energy of the site by energy of its hosts.
    pue: float = Field(default=1.0, ge=1, le=5)
    #: Grams of CO2 equivalent a kilowatt-hour, one for each hour of a day in UTC, or one for all.
    grams_per_kwh: Grams | GramsByHour | None = None

    def grams_at(self, hour: int) -> float | None:
        """Return the grams of CO2 equivalent a kilowatt-hour in an hour of the day in UTC."""
        if isinstance(self.grams_per_kwh, list):
            return self.grams_per_kwh[hour]
        return self.grams_per_kwh


class EnergyModel(BaseModel):
    """The figures of the file `ENERGY_MODEL`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: Watts of one core under load, by the CPU model as jobs have it.
    watts_per_core: Mapping[str, Watts] = Field(default_factory=dict)
    #: Watts of a core of any other model; without it such jobs have no modelled energy.
    default_watts_per_core: Watts | None = None
    memory_watts_per_gb: float = Field(default=MEMORY_WATTS_PER_GB, ge=0, le=100)
    sites: Mapping[str, SitePower] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobEnergy:
    """The energy of a job's host, and what it means for the site.

    `site_joules` are those with cooling, by `pue`; both are None if it is unknown. `carbon_grams`
    are grams of CO2 equivalent of `site_joules`, None without figures of the grid.
    """

    joules: float
    is_modelled: bool
    pue: float | None
    site_joules: float | None
    carbon_grams: float | None


def energy_of(job: Job) -> JobEnergy | None:
    """Return the energy of a job; None if it is neither measured nor can be modelled.

    Reads the site of the job.
    """
    model = energy_model()
    is_modelled = not job.energy_joules
    joules = _modelled_joules(job, model) if is_modelled else float(job.energy_joules or 0)
    if not joules:
        return None
    site_power = None
    if model is not None:
        name = job.site.name if job.site is not None else ""
        site_power = model.sites.get(name, model.sites.get(ANY_SITE))
    if site_power is None:
        return JobEnergy(joules, is_modelled, None, None, None)
    site_joules = joules * site_power.pue
    middle = job.ended_at
    if job.started_at is not None:
        middle = job.started_at + (job.ended_at - job.started_at) / 2
    grams_per_kwh = site_power.grams_at(middle.astimezone(UTC).hour)
    carbon_grams = None
    if grams_per_kwh is not None:
        carbon_grams = site_joules / JOULES_PER_KWH * grams_per_kwh
    return JobEnergy(joules, is_modelled, site_power.pue, site_joules, carbon_grams)


def energy_model() -> EnergyModel | None:
    """Return the model of the settings; None without one, and if it cannot be used.

    `manage.py check` says why not.
    """
    return None if settings.ENERGY_MODEL is None else _model_in(settings.ENERGY_MODEL)


@lru_cache(maxsize=1)
def _model_in(path: Path) -> EnergyModel | None:
    """Read the file once a process: a change takes a restart, like a change of a setting."""
    try:
        return read_energy_model(path)
    except BadEnergyModel as error:
        log.error("no energy is modelled: %s", error)
        return None


def read_energy_model(path: Path) -> EnergyModel:
    """Read a file with a model. Raises `BadEnergyModel`."""
    try:
        return EnergyModel.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadEnergyModel(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadEnergyModel(f"{path}: this is no UTF-8 text.") from error
    except json.JSONDecodeError as error:
        raise BadEnergyModel(f"{path}, line {error.lineno}: {error.msg}.") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BadEnergyModel(f"{path}: {place}: {first['msg']}.") from error


def _modelled_joules(job: Job, model: EnergyModel | None) -> float:
    if model is None or not job.cpus or not job.wall_seconds:
        return 0.0
    watts_per_core = model.watts_per_core.get(job.cpu_model, model.default_watts_per_core)
    if watts_per_core is None:
        return 0.0
    # Cores × wall time × CPU efficiency is the CPU time, of which a record may have too much.
    core_seconds = min(job.cpu_seconds, float(job.cpus * job.wall_seconds))
    memory_gb = (job.requested_memory_bytes or 0) / GIGABYTE
    of_memory = memory_gb * model.memory_watts_per_gb * job.wall_seconds
    return core_seconds * watts_per_core + of_memory
