"""How fast the end of a large log is read: `python -m benchmarks.log_tail [DIR]`.

Writes a log of 4 GB, sparse but for its last 8 MB, into DIR (default: a temporary directory) and prints the
milliseconds in which its last 1,000 lines are read: `tail_ms`, the median of 25 times.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median

LOG_BYTES = 4_000_000_000
WRITTEN_BYTES = 8_000_000
LINES = 1000
ROUNDS = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "opsportal.settings")
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        path = Path(directory) / "job.log"
        line = b"2026-01-02 03:04:05,678 INFO reco.tracks: 1234 hits in 7 planes, chi2 = 1.234\n"
        with path.open("wb") as file:
            file.seek(LOG_BYTES - WRITTEN_BYTES)
            file.write(line * (WRITTEN_BYTES // len(line)))
        print(json.dumps({"log_bytes": LOG_BYTES, "lines": LINES, "tail_ms": round(tail_ms(path), 3)}))


def tail_ms(path: Path) -> float:
    """Return the median milliseconds to open the log and read its last lines."""
    from apps.diagnosis.engine.tail import lines_of, open_log, read_back

    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        with open_log(path, None) as descriptor:
            shown = lines_of(read_back(descriptor, lines=LINES))
        times.append(1000 * (time.perf_counter() - begin))
        assert len(shown) == LINES, len(shown)
    return median(times)


if __name__ == "__main__":
    main()
