"""Find the markers of an experiment's pack in a log, in a process that is killed if too slow."""

from apps.core.bounded_pool import POOL, BudgetExceeded, PoolBusy
from apps.diagnosis.domain.log_page.outline import NO_PACK_MARKS, PackMarks, pack_marks_in
from apps.diagnosis.engine.formats.markers import NO_MARKERS, Markers

SECONDS = 1.0
TOO_COSTLY = (
    "The experiment pack's phases and levels are missing here: its expressions took too long."
)
BUSY = (
    "The experiment pack's phases and levels are missing here: the portal is busy. Reload the "
    "page in a moment."
)


def marks_by(markers: Markers, data: bytes) -> tuple[PackMarks, str]:
    """Return the markers of these expressions in a block, and a message if they are missing."""
    if markers == NO_MARKERS:
        return NO_PACK_MARKS, ""
    try:
        return POOL.call(pack_marks_in, data, markers, seconds=SECONDS), ""
    except PoolBusy:
        return NO_PACK_MARKS, BUSY
    except BudgetExceeded:
        return NO_PACK_MARKS, TOO_COSTLY
