"""The recovery rules that come with the portal."""

from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from apps.production.enums import PORTAL
from apps.recovery.domain.rules.lifecycle import create_rule
from apps.recovery.models import RecoveryRule

_FILE = Path(__file__).parent / "shipped.yaml"


def shipped_definitions() -> dict[str, dict[str, Any]]:
    """Return the definitions of the shipped rules by name, in the order in which they are tried."""
    definitions = {}
    for values in yaml.safe_load(_FILE.read_text()):
        name = values.pop("name")
        definitions[name] = values
    return definitions


def load_shipped_rules(*, at: datetime) -> int:
    """Add the shipped rules that this site does not have, passive; return how many.

    What a site has changed stays as it is.
    """
    names = set(RecoveryRule.objects.values_list("name", flat=True))
    added = 0
    for name, definition in shipped_definitions().items():
        if name in names:
            continue
        create_rule(
            name=name,
            definition=definition,
            by=PORTAL,
            at=at,
            owner="OPG",
            reason="Shipped with the portal.",
            shipped=True,
        )
        added += 1
    return added
