"""A thresholder that needs no further package."""

import numpy as np


class Thresholder:
    """In the style of pythresh: the largest scores are outliers."""

    def __init__(self, share=0.03):
        self.share = share

    def fit(self, scores):
        self.thresh_ = np.quantile(scores, 1 - self.share)
        self.labels_ = self.predict(scores)
        return self

    def eval(self, scores):  # what PyOD calls it up to 3.6.0
        return self.fit(scores).labels_

    def predict(self, scores):
        return (scores > self.thresh_).astype(int)
