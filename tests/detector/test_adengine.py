"""ADEngine knows QuadricDetector after register(engine): it plans, runs, explains, compares and investigates with it."""

import copy
import json
import re
from pathlib import Path

import numpy as np
import pytest
from pyod.utils.ad_engine import ADEngine
from sklearn.metrics import roc_auc_score

from pyod_quadric import QuadricDetector, adengine, register

NAME = "QuadricDetector"


def rows_and_labels(n=150, d=100, seed=0):
    """Return rows near a subspace of d features, the last ten away from it."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 5)) @ rng.normal(size=(5, d)) + 0.1 * rng.normal(size=(n, d))
    rows[-10:] += 0.3 * rng.normal(size=(10, d))
    return rows, (np.arange(n) >= n - 10).astype(int)


ROWS, LABELS = rows_and_labels()


@pytest.fixture
def engine():
    return register(ADEngine())


def test_entry_has_the_keys_of_all_others(engine):
    entry = engine.explain_detector(NAME)
    others = [engine.explain_detector(name) for name in engine.kb.algorithms if name != NAME]
    assert all(entry.keys() == other.keys() for other in others)
    for key in entry:
        assert any(type(entry[key]) is type(other[key]) for other in others), key
    assert entry["complexity"].keys() == others[0]["complexity"].keys()
    assert entry["category"] in {other["category"] for other in others}
    assert entry["preprocessing_mode"] in {other["preprocessing_mode"] for other in others}
    assert json.loads(json.dumps(entry)) == entry  # as the knowledge base is made of JSON
    assert entry["paper"]["id"] in engine.kb.papers


def test_rules_have_the_keys_of_all_others(engine):
    ours = [rule for rule in engine.kb.routing_rules["rules"] if rule["id"].startswith("quadric")]
    others = [rule for rule in engine.kb.routing_rules["rules"] if rule not in ours]
    assert len(ours) == 2
    for rule in ours:
        assert rule.keys() == others[0].keys()
        assert all(name["detector"] in engine.kb.algorithms for name in rule["recommendations"])


def test_figures_are_those_of_the_benchmark():
    table = (Path(__file__).parents[2] / "docs/benchmarks/detection.md").read_text()
    figures = re.findall(r"\.\d{3}", " ".join(adengine.ENTRY["strengths"] + adengine.ENTRY["weaknesses"]))
    assert len(figures) > 10
    assert set(figures) <= set(re.findall(r"\.\d{3}", table))


@pytest.mark.parametrize("priority", ["balanced", "accuracy"])
@pytest.mark.parametrize("data_type", [None, "embedding"])
def test_is_planned_for_embeddings_and_many_features(engine, priority, data_type):
    profile = engine.profile_data(ROWS, data_type=data_type)
    plan = engine.plan_detection(profile, priority=priority)
    assert plan["detector_name"] == NAME
    assert plan["params"] in ({}, {"contamination": 0.1})  # the oldest PyOD leaves it to the detector
    assert {other["detector_name"] for other in plan["alternatives"]} <= engine.kb.algorithms.keys() - {NAME}
    built = engine.build_detector(plan)
    assert isinstance(built, QuadricDetector)


@pytest.mark.parametrize(
    ("rows", "priority"), [(ROWS, "speed"), (ROWS[:, :8], "balanced"), (np.where(ROWS > 9, np.nan, ROWS), "balanced")]
)
def test_is_not_the_choice_in_a_hurry_for_few_features_or_missing_values(engine, rows, priority):
    assert rows is ROWS or rows.shape[1] == 8 or np.isnan(rows).any()
    assert engine.plan_detection(engine.profile_data(rows), priority=priority)["detector_name"] != NAME


def test_runs_a_plan(engine):
    plan = engine.plan_detection(engine.profile_data(ROWS))
    result = engine.run_detection(ROWS, plan, X_test=ROWS[:20])
    np.testing.assert_array_equal(result["scores_train"], QuadricDetector().fit(ROWS).decision_scores_)
    assert result["scores_test"].shape == (20,)
    assert roc_auc_score(LABELS, result["scores_train"]) > 0.95
    analysis = engine.analyze_results(result, X=ROWS)
    assert NAME in analysis["summary"]


@pytest.mark.skipif(not hasattr(ADEngine, "make_plan"), reason="PyOD had no such method then")
def test_is_planned_by_name():
    engine = register(ADEngine(random_state=7))
    plan = engine.make_plan([NAME, "KNN"], params=[{"score_function": "linear"}, {}])
    assert plan["detector_name"] == NAME
    built = engine.build_detector(plan)
    assert built.score_function == "linear"
    assert built.random_state == 7
    catalogue = engine.get_kb_for_routing(engine.profile_data(ROWS, data_type="embedding"))
    assert [entry["name"] for entry in catalogue["available_detectors"]] == [NAME]


def test_compares_and_lists(engine):
    ours, other = engine.compare_detectors([NAME, "KNN"])
    assert ours["name"] == NAME
    assert ours["best_for"] != other["best_for"]
    for data_type in ("tabular", "embedding"):
        assert NAME in [entry["name"] for entry in engine.list_detectors(data_type=data_type)]


def test_investigates(engine):
    state = engine.investigate(ROWS, data_type="embedding")
    assert [result["detector_name"] for result in state.results] == [NAME, "GMM", "KNN"]
    assert all(result["status"] == "success" for result in state.results)
    assert roc_auc_score(LABELS, state.consensus["scores"]) > 0.9  # KNN is at .55 here
    assert "Investigation Report" in engine.report(state)


def test_registering_twice_is_the_same_as_once(engine):
    once = copy.deepcopy(vars(engine.kb))
    assert register(engine) is engine
    assert vars(engine.kb) == once


def test_other_engines_do_not_change(engine):
    engine.kb.algorithms[NAME]["strengths"].clear()  # not even through what engines have in common
    engine.kb.routing_rules["rules"][-1]["conditions"].clear()
    fresh = ADEngine()
    assert NAME not in fresh.kb.algorithms
    register(fresh)
    assert fresh.kb.algorithms[NAME]["strengths"]
    assert fresh.kb.routing_rules["rules"][-1]["conditions"]


@pytest.mark.parametrize("thing", [None, "engine", ADEngine])
def test_other_things_are_refused(thing):
    with pytest.raises(TypeError, match="must be an ADEngine"):
        register(thing)
