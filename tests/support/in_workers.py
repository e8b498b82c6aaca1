"""Fit detectors in worker processes, by joblib and by SUOD, and print as JSON what came out and how many threads there were.

A program of its own, since SUOD changes how joblib starts processes, and since the number of threads is decided at the start.
"""

import json
from typing import Any

import joblib
import numpy as np
import torch
from pyod.models.knn import KNN
from pyod.models.suod import SUOD  # before joblib has workers, since it changes how they are started

from pyod_quadric import QuadricDetector

N_JOBS = 2
# Balanced scheduling would write into the installed package; projections and approximations would change the scores.
PLAIN = {"bps_flag": False, "rp_flag_global": False, "approx_flag_global": False}


class Counting(QuadricDetector):
    """A detector that notes how many threads its fit has."""

    def _fit(self, *arguments: Any) -> None:
        super()._fit(*arguments)
        self.threads_ = torch.get_num_threads()


def main() -> dict[str, Any]:
    """Fit here, in joblib's workers, and in SUOD's."""
    from tests.support.circle import TEST, X  # which workers need not import

    before = torch.get_num_threads()
    here = Counting().fit(X)
    tasks = [joblib.delayed(Counting().fit)(X) for _ in range(N_JOBS)]
    in_threads = joblib.Parallel(n_jobs=N_JOBS, backend="threading")(tasks)
    in_processes = joblib.Parallel(n_jobs=N_JOBS)(tasks)
    suod = SUOD([Counting(), Counting(score_function="quadrics"), KNN()], n_jobs=N_JOBS, **PLAIN).fit(X)
    members = suod.model_.base_estimators  # as they were fitted there: rounding may differ with the number of threads
    training, new = (
        np.stack(scores, axis=1)
        for scores in (
            [member.decision_scores_ for member in members],
            [member.decision_function(TEST) for member in members],
        )
    )
    by_hand = ((new - training.mean(axis=0)) / training.std(axis=0)).mean(axis=1)
    return {
        "cores": joblib.cpu_count(),
        "threads_alone": [before, here.threads_, torch.get_num_threads()],
        "threads": {
            "threading": [detector.threads_ for detector in in_threads],
            "loky": [detector.threads_ for detector in in_processes],
            "suod": [detector.threads_ for detector in members[:2]],
        },
        "same": all(
            np.allclose(other.decision_scores_, here.decision_scores_, rtol=1e-9) for other in in_threads + in_processes
        ),
        "suod": suod.decision_function(TEST).tolist(),
        "by_hand": by_hand.tolist(),
    }


if __name__ == "__main__":
    print(json.dumps(main()))
