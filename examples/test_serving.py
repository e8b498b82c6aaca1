"""The service scores like the detector, says what is wrong with a request, and needs neither torch nor PyOD."""

import json
import re
import subprocess
import sys
from urllib.request import ProxyHandler, Request, build_opener

import numpy as np
import pytest

from pyod_quadric import QuadricDetector
from tests.support.processes import HANGING

pytest.importorskip("fastapi")
pytest.importorskip("httpx2")  # FastAPI's test client
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

ROWS = np.random.default_rng(0).normal(size=(300, 4)) ** 3
NEW = np.append(np.random.default_rng(1).normal(size=(20, 4)), np.full((1, 4), 50.0), axis=0)

# torch copies its own trees in a way that it warns of.
pytestmark = pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")


@pytest.fixture(scope="module")
def detector():
    return QuadricDetector().fit(ROWS)


@pytest.fixture(scope="module")
def path(detector, tmp_path_factory):
    path = tmp_path_factory.mktemp("serving") / "scores.onnx"
    detector.to_onnx(path)
    return path


@pytest.fixture(scope="module")
def client(path):
    from fastapi.testclient import TestClient

    from examples.serving_example import create_app

    with TestClient(create_app(path)) as client:
        yield client


def test_the_service_scores_like_the_detector(detector, client):
    answer = client.post("/score", json={"rows": NEW.tolist()})
    assert answer.status_code == 200, answer.text
    found, exact = answer.json(), NEW.astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(found["scores"], detector.decision_function(exact), rtol=1e-10)
    np.testing.assert_allclose(found["p_values"], detector.predict_pvalue(exact), atol=1e-12)
    assert found["outliers"] == [bool(label) for label in detector.predict(exact)]
    assert found["outliers"][-1]
    assert not all(found["outliers"])
    assert client.get("/model").json()["n_features"] == 4


@pytest.mark.parametrize("row", ["", "[1, 2, NaN, 4]", "[1, 2, 1e300, 4]", '["a", 2, 3, 4]', "1"])
def test_bad_requests_are_refused(client, row):
    answer = client.post("/score", content=f'{{"rows": [{row}]}}', headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text


def test_a_wrong_number_of_features_is_said(client):
    answer = client.post("/score", json={"rows": [[1, 2, 3, 4], [1, 2, 3]]})
    assert answer.status_code == 422
    assert answer.json()["detail"] == "each row must have 4 numbers, but row 1 has 3"


def test_the_service_imports_nothing_heavy(path):
    code = (
        "import sys; from examples.serving_example import create_app; create_app(sys.argv[1]); "
        "print(sorted({'torch', 'pyod', 'sklearn', 'pyod_quadric'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


def test_the_command_serves_until_it_is_stopped(detector, path):
    pytest.importorskip("uvicorn")
    command = [sys.executable, "-m", "examples.serving_example", str(path), "--port", "0"]  # a free one, which is printed
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as service:
        try:
            printed = ""
            while not (found := re.search(r"running on (http://127\.0\.0\.1:\d+)", printed)):
                line = service.stderr.readline()
                assert line, printed  # it has ended
                printed += line
            content = json.dumps({"rows": NEW.tolist()}).encode()
            request = Request(f"{found[1]}/score", content, {"Content-Type": "application/json"})
            with build_opener(ProxyHandler({})).open(request, timeout=HANGING) as answer:
                scores = json.load(answer)["scores"]
        finally:
            service.terminate()
    np.testing.assert_allclose(scores, detector.decision_function(NEW.astype(np.float32).astype(np.float64)), rtol=1e-10)
