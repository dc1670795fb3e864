"""Waits until its parent exits, then stops the processes it left:
`python -m dev.guard RUN_DIR [REMOVE]`.
"""

import shutil
import sys
from pathlib import Path

from dev.processes import stop_all

if __name__ == "__main__":
    sys.stdin.buffer.read()
    stop_all(Path(sys.argv[1]))
    for directory in sys.argv[2:]:
        shutil.rmtree(directory, ignore_errors=True)
