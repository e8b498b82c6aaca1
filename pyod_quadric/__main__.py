"""``python -m pyod_quadric`` is the command ``pyod-quadric``."""

import sys

from pyod_quadric.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
