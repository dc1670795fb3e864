"""The configured and the used shares of experiments."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import Experiment
from apps.production.models import DEFAULT_WEIGHT


@dataclass(frozen=True)
class Shares:
    """Shares of production by primary key of the experiment.

    `weights` are the configured shares; `used` are core-seconds.
    """

    weights: Mapping[int, int]
    used: Mapping[int, int]
    used_days: int = 0
    as_of: datetime | None = None

    def share(self, experiment_id: int) -> float:
        return self.weights.get(experiment_id, 0) / (sum(self.weights.values()) or 1)

    def used_part(self, experiment_id: int) -> float | None:
        """Return the fraction of all recent use; None if there was none."""
        everything = sum(self.used.values())
        if not everything:
            return None
        return self.used.get(experiment_id, 0) / everything

    def cores(self, experiment_id: int) -> float | None:
        """Return the experiment's share of the cores in use on average; None without any use."""
        seconds = self.used_days * 86_400
        if self.used and seconds:
            return self.share(experiment_id) * sum(self.used.values()) / seconds
        return None


def read_shares() -> Shares:
    """Read all shares in one query."""
    experiments = list(Experiment.objects.select_related("share", "shareuse"))
    weights = {}
    for experiment in experiments:
        weights[experiment.pk] = (
            experiment.share.weight if hasattr(experiment, "share") else DEFAULT_WEIGHT
        )
    uses = []
    for experiment in experiments:
        if hasattr(experiment, "shareuse"):
            uses.append(experiment.shareuse)
    used = {use.experiment_id: use.core_seconds for use in uses}
    return Shares(
        weights,
        used,
        max((use.days for use in uses), default=0),
        min((use.as_of for use in uses), default=None),
    )
