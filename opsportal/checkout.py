"""Settings for `manage.py` in a checkout where `make run` has set up a portal,
so that no shell has to source them.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path

#: Settings that change how a process runs, not which portal it works on.
_HARMLESS = {"DEBUG", "LOG_LEVEL", "TIME_ZONE"}


def adopt_settings(root: Path, environment: MutableMapping[str, str]) -> None:
    """Fill the environment from `VAR/env` below `root`,
    where that exists and the environment configures no portal.

    One setting of a portal is enough to leave the environment alone: an incomplete one is an error
    to report, and must not be completed with the demo's database. `VAR` is that of `make run`,
    `var` unless given.
    """
    exports = root / (environment.get("VAR") or "var") / "env"
    if not os.access(exports, os.R_OK):
        return
    from opsportal.env import Environment

    names = Environment.model_fields.keys() - _HARMLESS
    if any(name in environment or f"{name}_FILE" in environment for name in names):
        return
    from dev.exports import read_exports

    for name, value in read_exports(exports).items():
        environment.setdefault(name, value)
