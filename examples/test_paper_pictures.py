"""The paper's pictures are drawn, and what they show is what the examples say."""

import math

import pytest
import torch

from examples import quadric_pairs_example, shifted_cloud_example, tennis_ball_example
from examples._drawing import distance_to_segments, intersection_segments
from pyod_quadric import Quadrics


def is_png(picture):
    return picture.read_bytes().startswith(b"\x89PNG")


def test_proposed_fit_is_closer_to_the_seam_than_kernel_pca(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    distances, control = tennis_ball_example.main(picture, n_seeds=2)
    for name in ("proposed, penalty", "proposed, Stiefel"):
        assert all(ours < base for ours, base in zip(distances[name], distances["kernel PCA"], strict=True))
        assert max(distances[name]) < 0.12  # the noise
    assert max(control["kernel PCA"]) < min(distances["kernel PCA"])  # the outlier is what moves it
    assert "in 2 of 2 clouds" in capsys.readouterr().out
    assert is_png(picture)


def test_improved_fit_shifts_with_the_cloud_and_base_fit_does_not(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    differences = shifted_cloud_example.main(picture)
    assert differences["base problem"] > 0.1
    assert differences["HS closed form"] < 1e-10
    assert differences["improved problem"] < 1e-3  # 1e-9 here, but other rounding may lead to a neighbouring minimum
    assert "largest change" in capsys.readouterr().out
    assert is_png(picture)


def test_curves_of_pairs_lie_on_both_quadrics(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    errors = quadric_pairs_example.main(picture)
    assert len(errors) == 3
    assert max(errors.values()) < 1e-12
    assert capsys.readouterr().out.count("curve of length") == 3
    assert is_png(picture)


@pytest.mark.parametrize("build", quadric_pairs_example.PAIRS)
def test_meshes_lie_on_their_quadrics(build):
    pair = build()
    for k, surface in enumerate(pair):
        for mesh in surface.meshes:
            values = quadric_pairs_example.quadrics_of(pair)[k].values(torch.tensor(mesh).reshape(-1, 3))
            assert values.abs().max() < 1e-12


def test_quiet_example_prints_nothing(capsys):
    quadric_pairs_example.main(quiet=True)
    assert capsys.readouterr().out == ""


def test_seam_lies_on_the_unit_sphere():
    norms = tennis_ball_example.seam_segments().norm(dim=2)
    assert torch.allclose(norms, torch.ones_like(norms))


def test_sphere_and_plane_meet_in_a_circle():
    quadratic = torch.stack([torch.eye(3, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.float64)])
    linear = torch.tensor([[0, 0, 0], [0, 0, 1]], dtype=torch.float64)
    segments = intersection_segments(Quadrics(quadratic, linear, torch.tensor([-1, -0.6], dtype=torch.float64)), 1.5)
    length = (segments[:, 1] - segments[:, 0]).norm(dim=1).sum()
    assert length == pytest.approx(2 * math.pi * 0.8, rel=1e-3)
    assert torch.allclose(segments[:, :, :2].norm(dim=2), torch.tensor(0.8, dtype=torch.float64))


def test_quadrics_that_do_not_meet_are_at_infinite_distance():
    quadratic = torch.eye(3, dtype=torch.float64).expand(2, 3, 3)
    spheres = Quadrics(quadratic, torch.zeros(2, 3, dtype=torch.float64), torch.tensor([-1, -2], dtype=torch.float64))
    segments = intersection_segments(spheres, 1.5)
    assert segments.shape == (0, 2, 3)
    assert tennis_ball_example.curve_distance(segments, tennis_ball_example.seam_segments()) == math.inf


def test_distance_to_a_segment():
    segments = torch.tensor([[[0, 0, 0], [2, 0, 0]]], dtype=torch.float64)
    points = torch.tensor([[1, 3, 0], [-3, 4, 0], [2, 0, 1], [1, 0, 0]], dtype=torch.float64)
    assert distance_to_segments(points, segments).tolist() == pytest.approx([3, 5, 1, 0])
