"""The pack of an experiment that is in force."""

from functools import lru_cache

from apps.diagnosis.engine.markers import NO_MARKERS, Markers, compiled
from apps.diagnosis.enums import ChangeState
from apps.diagnosis.models import ExperimentPack


def pack_in_force(experiment_id: int) -> ExperimentPack | None:
    """Return the newest applied pack of an experiment."""
    packs = ExperimentPack.objects.filter(experiment=experiment_id, state=ChangeState.APPLIED)
    return packs.select_related("experiment").order_by("-version").first()


def markers_of(experiment_id: int | None) -> Markers:
    """Return the phase markers and level formats of an experiment, compiled once per version in each process."""
    if experiment_id is None:
        return NO_MARKERS
    applied = ExperimentPack.objects.filter(experiment=experiment_id, state=ChangeState.APPLIED)
    newest = applied.order_by("-version").values_list("pk", flat=True).first()
    return NO_MARKERS if newest is None else _compiled(newest)


@lru_cache(maxsize=100)
def _compiled(pk: int) -> Markers:
    return compiled(ExperimentPack.objects.values_list("markers", flat=True).get(pk=pk))
