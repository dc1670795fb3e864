"""The documentation of the settings: `.env.example` and `docs/settings.md`."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

#: The sections of `docs/settings.md`, by the first setting of each.
SECTIONS = {
    "SECRET_KEY": "Keys, servers and addresses",
    "LOG_LEVEL": "Logs of the portal",
    "LOG_ROOTS": "Logs of jobs",
    "RECOVERY_MINUTES_PER_JOB": "Recovery, hosts and first jobs",
    "LOG_EXCERPT_DAYS": "Retention, archived months and backups",
    "ENERGY_MODEL": "Energy and datasets",
    "CAPTURE_CLUSTER": "Capture",
    "ARCHIVE_SINKS": "Archive and search",
    "ARCHIVE_PORTAL_TOKEN": "Capture hosts and masking",
    "EMAIL_URL": "Mail and contact",
    "SSO_ROLES": "Single sign-on",
    "FEED_HOSTS": "Monitoring sources and webhooks",
    "IDEMPOTENCY_HOURS": "Limits",
    "METRICS_TOKEN": "Metrics, traces and public status",
}
_HEAD = """\
# Settings

All settings come from the environment. An installed portal reads them from
`/etc/opsportal/opsportal.env` ([how to write it](production.md#4-settings-and-secrets)). Only
{required} are required.

* Each variable `NAME` may also be given as `NAME_FILE`, the path of a file that holds the value.
* A bad or missing value stops the start with the variable's name.
* `manage.py capture` needs none of the required ones; with `CAPTURE_PORTAL` it needs `MASKING_KEY`
  and the token of a capture host.

This page is written by `python -m opsportal.env`.
"""
_TABLE = "| variable | default | meaning |\n| --- | --- | --- |\n"
_PAGE = re.compile(r"docs/([\w-]+\.md)")


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
    names = ", ".join(f"`{name}`" for name in required)
    lines = [_HEAD.format(required=names)]
    for name, field in settings.model_fields.items():
        if name in SECTIONS:
            lines.append(f"\n## {SECTIONS[name]}\n{_TABLE}")
        if name in required:
            default = "**required**"
        elif _default(field):
            default = f"`{_default(field)}`".replace("|", r"\|")
        else:
            default = "–"
        meaning = _PAGE.sub(r"[docs/\1](\1)", field.description or "")
        lines.append(f"| `{name}` | {default} | {meaning} |\n")
    return "".join(lines)


def write_docs(settings: type[BaseModel], required: Sequence[str]) -> None:
    """Write both files."""
    root = Path(__file__).parents[1]
    (root / ".env.example").write_text(env_example(settings, required), encoding="utf-8")
    (root / "docs/settings.md").write_text(settings_page(settings, required), encoding="utf-8")
    sys.stdout.write("wrote .env.example and docs/settings.md\n")
