"""Settings of the whole test run."""

import os

from hypothesis import settings

# Shared machines stall now and then, which a deadline would take for a failure. Hypothesis itself notices a CI and then
# repeats the same examples every time; elsewhere each run tries new ones.
settings.register_profile("here", settings.get_profile("ci" if os.environ.get("CI") else "default"), deadline=None)
settings.load_profile("here")
