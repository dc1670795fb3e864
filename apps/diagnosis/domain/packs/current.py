"""The pack of an experiment that is in force."""

from collections.abc import Collection

from apps.diagnosis.engine.formats.markers import NO_MARKERS, Markers, markers_in
from apps.diagnosis.enums import ChangeState
from apps.diagnosis.models import ExperimentPack


def pack_in_force(experiment_id: int) -> ExperimentPack | None:
    """Return the newest applied pack of an experiment."""
    packs = ExperimentPack.objects.filter(experiment=experiment_id, state=ChangeState.APPLIED)
    return packs.select_related("experiment").order_by("-version").first()


def markers_of(experiment_id: int | None) -> Markers:
    """Return the phase markers and level formats of an experiment."""
    if experiment_id is None:
        return NO_MARKERS
    applied = ExperimentPack.objects.filter(experiment=experiment_id, state=ChangeState.APPLIED)
    stored = applied.order_by("-version").values_list("markers", flat=True).first()
    return NO_MARKERS if stored is None else markers_in(stored)


def markers_by_experiment(experiments: Collection[int | None]) -> dict[int | None, Markers]:
    """Return the phase markers and level formats by experiment ID, in one query."""
    applied = ExperimentPack.objects.filter(experiment__in=experiments, state=ChangeState.APPLIED)
    newest = (
        applied.order_by("experiment", "-version")
        .distinct("experiment")
        .values_list("experiment", "markers")
    )
    markers = dict.fromkeys(experiments, NO_MARKERS)
    for experiment, stored in newest:
        markers[experiment] = markers_in(stored)
    return markers
