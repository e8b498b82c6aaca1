"""Examples that need a package which is not there everywhere are not collected without it."""

import importlib.util

NEEDED = {"mlflow_example.py": "mlflow", "serving_example.py": "fastapi"}
collect_ignore = [name for name, package in NEEDED.items() if importlib.util.find_spec(package) is None]
