"""The demo's debug profiles from `debugging.yaml`."""

from collections.abc import Mapping
from pathlib import Path

import yaml

from apps.accounts.models import Experiment
from apps.submission.models import DebugProfile

_DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


def load_debug_profiles(experiments: Mapping[str, Experiment]) -> None:
    """Create missing profiles of debug re-runs."""
    for profile in _DATA:
        experiment = experiments.get(profile.get("experiment", ""))
        values = {
            name: value for name, value in profile.items() if name not in ("experiment", "name")
        }
        DebugProfile.objects.get_or_create(
            experiment=experiment, name=profile["name"], defaults=values
        )
