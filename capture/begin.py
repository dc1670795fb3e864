"""Begins a capture by the plan of the last start, before Django, or anything else of the portal,
is loaded.

A job that comes before the spool is watched may be gone unseen, and to load Django takes seconds on
a busy host. So this module and what it imports at its top are small on purpose.
"""

import os
import sys

from capture import kept_plan
from capture.resources import go_first
from capture.watch.early import watch_early

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def begin(arguments: "Sequence[str]") -> None:
    """Carry out the plan that there is for this command line, and exit;
    return where Django has to make one.
    """
    if list(arguments[:1]) == ["--planned"]:
        from capture.main import run_taken

        sys.exit(run_taken(int(arguments[1])))
    kept = kept_plan.take(arguments=arguments, environment=os.environ)
    if kept is None:
        return
    packed, watched = kept
    go_first()
    watch_early(watched)
    from capture.main import run_planned
    from capture.plan import Plan

    sys.exit(run_planned(Plan.of(packed)))
