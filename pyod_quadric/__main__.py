"""``python -m pyod_quadric`` is the command ``pyod-quadric``."""

from pyod_quadric.cli.main import run

if __name__ == "__main__":
    run()
