"""The probes that come with the portal, inactive until a site has filled in its addresses."""

from pathlib import Path

import yaml

from apps.hosts.models import Probe

_FILE = Path(__file__).parent / "shipped.yaml"


def load_shipped_probes() -> int:
    """Add the shipped probes that this site does not have, inactive; return how many.

    What a site has changed stays as it is.
    """
    names = set(Probe.objects.values_list("name", flat=True))
    added = 0
    for values in yaml.safe_load(_FILE.read_text(encoding="utf-8")):
        if values["name"] not in names:
            Probe.objects.create(**values)
            added += 1
    return added
