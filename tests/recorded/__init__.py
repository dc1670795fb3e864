"""What the portal answered before a change, as files beside this one,
so that code which moves changes nothing.

`RECORD=yes` writes the files anew. Read their difference before you commit it.
"""

import os
from difflib import unified_diff
from itertools import islice
from pathlib import Path

import pytest

MOST_LINES = 40


def compare_with_recorded(text: str, *, name: str) -> None:
    """Fail unless the text is that of the file `name`."""
    path = Path(__file__).with_name(name)
    if os.environ.get("RECORD"):
        path.write_text(text)
        return
    recorded = path.read_text() if path.exists() else ""
    if text != recorded:
        difference = unified_diff(
            recorded.splitlines(), text.splitlines(), "recorded", "now", n=0, lineterm=""
        )
        pytest.fail(
            "\n".join(["RECORD=yes writes it anew:", *islice(difference, MOST_LINES)]),
            pytrace=False,
        )
