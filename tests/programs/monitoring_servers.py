"""Monitoring systems of the tests, by the configuration of docs/monitoring.md,
and a worker for what they send.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest
from django.conf import settings

from apps.statusboard.domain.monitoring.intake import pump
from apps.statusboard.domain.monitoring.payloads import parse_payload
from apps.statusboard.enums import PayloadState
from apps.statusboard.models import RawPayload
from dev.system_parts import PATH


def documented(heading: str, first: str, replaced: Mapping[str, str]) -> str:
    """Return the block of a section of the documentation that begins so, with texts replaced,
    all of which it has.
    """
    page = (settings.BASE_DIR / "docs/monitoring.md").read_text()
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = [
        dedent(block)
        for block in re.findall(r"^ *```\w*\n(.*?)^ *```$", section, re.MULTILINE | re.DOTALL)
    ]
    block = next(block for block in blocks if block.startswith(first))
    for old, new in replaced.items():
        assert old in block, f"{heading} has no “{old}”"
        block = block.replace(old, new)
    return block


@contextmanager
def running(log: Path, program: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program; in the end print the last of what it wrote,
    which pytest shows if the test failed.
    """
    command = [shutil.which(program, path=PATH) or program, *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=os.environ | {"no_proxy": "*"}
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=60)
        print(log.read_text(errors="replace")[-2000:])


def wait(seen: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Wait until something is seen; meanwhile do the worker's part of the work."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pump()
        for pk in (
            RawPayload.objects.filter(state=PayloadState.RECEIVED)
            .order_by("pk")
            .values_list("pk", flat=True)
        ):
            parse_payload(payload_id=pk)
        if seen():
            return
        time.sleep(0.1)
    pytest.fail(f"waited {seconds} s for {what}")
