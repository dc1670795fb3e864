"""The workflow types that come with the portal. More are made in the back office."""

from functools import cache
from pathlib import Path

from apps.production.domain.types.declaration import Workflow, read_declaration

_DIRECTORY = Path(__file__).parent / "declarations"


def builtin_texts() -> dict[str, str]:
    """Return the declarations by the keys of their types, the general one first."""
    paths = sorted(_DIRECTORY.glob("*.yaml"), key=lambda path: (path.stem != "general", path.stem))
    return {path.stem: path.read_text(encoding="utf-8") for path in paths}


@cache
def general() -> Workflow:
    """Return the type of a request that names none."""
    return read_declaration(builtin_texts()["general"], key="general")
