"""Settings of the whole test run."""

import importlib.util
import os

from hypothesis import settings

# Shared machines stall now and then, which a deadline would take for a failure. Hypothesis itself notices a CI and then
# repeats the same examples every time; elsewhere each run tries new ones.
settings.register_profile("here", settings.get_profile("ci" if os.environ.get("CI") else "default"), deadline=None)
# Old versions of packages are tried for what they lack, which needs no rare numbers.
settings.register_profile("few", settings.get_profile("here"), max_examples=15)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "here"))

# A program that needs a package which is not there everywhere; the tests that run it are skipped then.
collect_ignore = [] if importlib.util.find_spec("suod") else ["support/in_workers.py"]
