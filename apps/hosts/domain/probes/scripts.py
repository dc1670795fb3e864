"""The script of a probe job: each probe as one phase of `ops-phase`."""

import functools
import secrets
import shlex
from collections.abc import Sequence

from django.conf import settings

from apps.hosts.models import Probe

#: Where `ops-phase` posts the results, instead of the phases of production jobs.
RESULTS_PATH = "/api/v1/hosts/probe-results/"

_HEAD = f"""#!/bin/sh
# Probes of this host. Each is one phase; its exit code and last line go to the portal.
OPS_PHASE_DIR=$(mktemp -d) || exit 0
export OPS_PHASE_DIR
OPS_PHASE_ENDPOINT={RESULTS_PATH}
OPS_PHASE_NOTE=$OPS_PHASE_DIR/note
export OPS_PHASE_ENDPOINT OPS_PHASE_NOTE
trap 'rm -rf "$OPS_PHASE_DIR"' EXIT
"""
_RUN = """# run NAME SECONDS: the last line that the probe prints is the note of its phase
timeout -k 5 "$2" sh "$OPS_PHASE_DIR/$1.sh" > "$OPS_PHASE_DIR/output" 2>&1
code=$?
cat "$OPS_PHASE_DIR/output"
tail -n 1 "$OPS_PHASE_DIR/output" > "$OPS_PHASE_NOTE"
case $code in 124|137) echo "not ready after $2 s" > "$OPS_PHASE_NOTE" ;; esac
exit "$code"
"""
_TAIL = """sh "$OPS_PHASE_DIR/ops-phase" flush
exit 0
"""


def write_probe_script(probes: Sequence[Probe]) -> str:
    """Return a POSIX shell script that runs the probes one after the other.

    Nothing fails the job: without a place for its files it reports nothing.
    """
    parts = [_HEAD, _file("ops-phase", _client()), _file("run", _RUN)]
    for probe in probes:
        script = probe.script.replace("\r\n", "\n")
        parts.append(_file(f"{probe.name}.sh", script))
        name = shlex.quote(probe.name)
        parts.append(
            f'sh "$OPS_PHASE_DIR/ops-phase" run {name} -- '
            f'sh "$OPS_PHASE_DIR/run" {name} {probe.timeout_seconds}\n'
        )
    parts.append(_TAIL)
    return "".join(parts)


def _file(name: str, content: str) -> str:
    """Return shell commands that write a file. Nothing in the content can end it early."""
    end = f"END_{secrets.token_hex(8)}"
    content = content.rstrip("\n")
    return f"cat > \"$OPS_PHASE_DIR/{name}\" <<'{end}'\n{content}\n{end}\n"


@functools.cache
def _client() -> str:
    return (settings.BASE_DIR / "clients/ops-phase/ops-phase").read_text(encoding="utf-8")
