"""`python -m capture`."""

import os
import sys

from capture.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
