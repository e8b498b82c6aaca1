"""Settings of the whole test run."""

import contextlib
import importlib.util
import os

from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "always")

# The same examples every time, so that a failure is one of the code, not of the day. Shared machines stall now and then, which
# a deadline, or a check of how fast examples are drawn, would take for a failure.
always = {"derandomize": True, "deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("always", settings.get_profile("default"), **always)
# Old versions of packages are tried for what they lack, which needs no rare numbers.
settings.register_profile("few", settings.get_profile("always"), max_examples=15)
# New examples every time, and many: run by hand, to find what the others have missed. What failed is kept in .hypothesis.
more = {"derandomize": False, "max_examples": int(os.environ.get("HYPOTHESIS_EXAMPLES", "1000")), "print_blob": True}
settings.register_profile("explore", settings.get_profile("default"), **(always | more))
settings.load_profile(PROFILE)
if PROFILE != "explore":
    # Hypothesis also draws numbers that it reads in the modules loaded so far, which depend on the tests that ran before.
    with contextlib.suppress(ImportError):  # inside of hypothesis things move
        from hypothesis.internal.conjecture import providers

        providers._get_local_constants = providers.Constants

# A program that needs a package which is not there everywhere; the tests that run it are skipped then.
collect_ignore = [] if importlib.util.find_spec("suod") else ["support/in_workers.py"]
