"""What the units of the portal take of the memory."""

import threading
from contextlib import suppress

from benchmarks.installation.debian import CommandFailed, Debian

UNITS = (
    "opsportal-web",
    "opsportal-worker@default",
    "opsportal-worker@harvest",
    "opsportal-worker@archive",
    "opsportal-beat",
    "opsportal-capture",
)
SAMPLE_SECONDS = 5
#: Prints the kB of each unit: of its processes, shared pages proportionally.
SAMPLE = r"""
set +e
for unit in UNITS; do
    main=$(systemctl show --property=MainPID --value $unit)
    for pid in $main $(ps -o pid= --ppid $main); do cat /proc/$pid/smaps_rollup; done 2>/dev/null |
        awk -v unit=$unit '/^Pss:/ { kb += $2 } END { print unit, kb + 0 }'
done
exit 0
"""


class Memory:
    """Samples the memory of the units until `stop`; `peaks_mb` are the highest by unit."""

    def __init__(self, debian: Debian) -> None:
        self.debian = debian
        self.peaks_mb = dict.fromkeys(UNITS, 0)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _sample(self) -> None:
        command = SAMPLE.replace("UNITS", " ".join(UNITS))
        while not self._stopped.wait(SAMPLE_SECONDS):
            # While units restart, their processes go.
            with suppress(CommandFailed):
                for line in self.debian.run(command).splitlines():
                    unit, kb = line.split()
                    self.peaks_mb[unit] = max(self.peaks_mb[unit], int(kb) // 1024)
