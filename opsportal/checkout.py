"""Settings for `manage.py` in a checkout where `make run` has created a portal.

With them, shells need not source the settings.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path

#: Settings that do not select a portal.
_HARMLESS = {"DEBUG", "LOG_LEVEL", "TIME_ZONE"}


def adopt_settings(root: Path, environment: MutableMapping[str, str]) -> None:
    """Load `VAR/env` below `root` into the environment, unless the environment configures a portal.

    A single setting of a portal prevents this: an incomplete environment is an error to report, and
    must not be completed with the demo's database. `VAR` is that of `make run`; the default is
    `var`.
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
