"""The documentation of the settings: `.env.example` and `docs/settings.md`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def _default(field: FieldInfo) -> str:
    default = field.get_default()
    if isinstance(default, list):
        return ",".join(default)
    if isinstance(default, dict):
        return json.dumps(default) if default else ""
    if default is None:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    return str(default)


def env_example(settings: type[BaseModel], required: Sequence[str]) -> str:
    """Return the text of `.env.example`."""
    lines = [
        (
            "# Every setting, as environment variables; each may be given as NAME_FILE instead. "
            "See docs/settings.md."
        ),
        "",
    ]
    for name, field in settings.model_fields.items():
        mark = "" if name in required else "# "
        lines += [f"# {field.description}", f"{mark}{name}={_default(field)}", ""]
    return "\n".join(lines)


def settings_page(settings: type[BaseModel], required: Sequence[str]) -> str:
    """Return the text of `docs/settings.md`."""
    head = (
        "# Settings\n\nAll settings come from the environment. Each variable `NAME` may also be "
        "given as `NAME_FILE`, the path of a\nfile that holds the value. A bad or missing value "
        "stops the start with the variable's name. `manage.py capture`\nneeds none of the "
        "required ones; with `CAPTURE_PORTAL` it needs `MASKING_KEY` and the token of a capture "
        "host.\nThis page is written by `python -m opsportal.env`.\n\n"
        "| variable | default | meaning |\n| --- | --- | --- |\n"
    )
    rows = []
    for name, field in settings.model_fields.items():
        if name in required:
            default = "**required**"
        elif _default(field):
            default = f"`{_default(field)}`".replace("|", r"\|")
        else:
            default = "–"
        rows.append(f"| `{name}` | {default} | {field.description} |\n")
    return head + "".join(rows)


def write_docs(settings: type[BaseModel], required: Sequence[str]) -> None:
    """Write both files."""
    root = Path(__file__).parents[1]
    (root / ".env.example").write_text(env_example(settings, required), encoding="utf-8")
    (root / "docs/settings.md").write_text(settings_page(settings, required), encoding="utf-8")
    sys.stdout.write("wrote .env.example and docs/settings.md\n")
