"""The recovery rules that come with the portal."""

from datetime import datetime
from pathlib import Path

import yaml

from apps.production.enums import PORTAL
from apps.recovery.domain.rules import create_rule
from apps.recovery.models import RecoveryRule

_FILE = Path(__file__).parent / "shipped.yaml"


def load_shipped_rules(*, at: datetime) -> int:
    """Add the shipped rules that this site does not have, passive; return how many.

    What a site has changed stays as it is.
    """
    names = set(RecoveryRule.objects.values_list("name", flat=True))
    added = 0
    for values in yaml.safe_load(_FILE.read_text()):
        if values["name"] in names:
            continue
        definition = {name: value for name, value in values.items() if name != "name"}
        create_rule(
            name=values["name"],
            definition=definition,
            by=PORTAL,
            at=at,
            owner="OPG",
            reason="Shipped with the portal.",
            shipped=True,
        )
        added += 1
    return added
