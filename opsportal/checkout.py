"""Where a checkout has what a package has elsewhere: files beside the code, and settings.

`manage.py` takes the settings of the portal that `make run` has created in a checkout, so that
shells need not source them.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path

_PACKAGED_FILES = Path(__file__).resolve().parent / "files"
#: The directory of `templates`, `static`, `docs`, `deploy` and `clients`: the package has them
#: beside this module (`pyproject.toml` puts them there), a checkout at its top.
FILES = _PACKAGED_FILES if _PACKAGED_FILES.is_dir() else Path(__file__).resolve().parents[1]

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
