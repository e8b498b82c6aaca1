"""Scores by Spark and by Ray Data, on two workers of this machine: a script, which prints what it found as JSON."""

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from pyod_quadric import QuadricDetector, batch_scorer, cluster

N_ROWS, N_WORKERS, N_PARTITIONS, NAMES = 2_000, 2, 8, list("abcdef")


def n_models_read():
    return cluster._loaded.cache_info().misses


def with_scores(batch, scorer):
    """Return scores by number, with the process that found them and how many models that has read."""
    scores = scorer(batch[NAMES])
    return pd.DataFrame({"id": batch["id"], "score": scores, "process": os.getpid(), "models": n_models_read()})


def on_spark(frame, path, unnamed):
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import array, pandas_udf, struct

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{N_WORKERS}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "100").getOrCreate()
    scorer, of_lists = batch_scorer(path), batch_scorer(unnamed)

    @pandas_udf("double")
    def score(features: pd.DataFrame) -> pd.Series:
        return scorer(features)

    @pandas_udf("double")
    def score_of_list(embedding: pd.Series) -> pd.Series:
        return of_lists(embedding)

    rows = spark.createDataFrame(frame).repartition(N_PARTITIONS)
    kinds = "id long, score double, process long, models long"
    found = rows.mapInPandas(lambda batches: (with_scores(batch, scorer) for batch in batches), kinds).toPandas()
    columns = rows.select("id", score(struct(*NAMES)).alias("struct"), score_of_list(array(*NAMES)).alias("list")).toPandas()
    spark.stop()
    return found.merge(columns, on="id")


def on_ray(frame, path, unnamed):
    import ray

    ray.init(num_cpus=N_WORKERS, include_dashboard=False, log_to_driver=False)
    rows = ray.data.from_pandas(frame).repartition(N_PARTITIONS)
    scorer, of_arrays = batch_scorer(path), batch_scorer(unnamed)
    found = rows.map_batches(with_scores, fn_kwargs={"scorer": scorer}, batch_format="pandas", batch_size=100).to_pandas()
    numbered = ray.data.from_numpy(frame[["id", *NAMES]].to_numpy())
    arrays = numbered.map_batches(lambda batch: {"id": batch["data"][:, 0], "array": of_arrays(batch["data"][:, 1:])})
    arrays = arrays.to_pandas()
    ray.shutdown()
    return found.merge(arrays, on="id")


def main(engine):
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(2, N_ROWS, len(NAMES))) ** 3
    detector = QuadricDetector().fit(pd.DataFrame(rows, columns=NAMES))
    frame = pd.DataFrame(new, columns=NAMES)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("named", "unnamed")]
        detector.save(paths[0])
        QuadricDetector().fit(rows).save(paths[1])
        found = {"spark": on_spark, "ray": on_ray}[engine](frame.assign(id=range(N_ROWS)), *paths).sort_values("id")
    expected = detector.decision_function(frame)
    kinds = [name for name in found if name in ("score", "struct", "list", "array")]
    print(
        json.dumps(
            {
                "errors": {kind: float(np.abs(found[kind].to_numpy() / expected - 1).max()) for kind in kinds},
                "rows": len(found),
                "models": {str(process): int(each.max()) for process, each in found.groupby("process")["models"]},
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
