"""Models put together by hand: what their parts do to one another."""

import numpy as np
import pytest
import torch

from pyod_quadric import Quadrics, WorkingCoordinates
from pyod_quadric.model.linear import LinearPart
from pyod_quadric.model.model import Model, _adding_up

CIRCLE = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))


def test_without_a_linear_part_a_projection_keeps_what_leaves_the_coordinates():
    mean = torch.tensor([1.0, 2.0, 3.0])
    model = Model(WorkingCoordinates(mean, torch.eye(3)[:2]), CIRCLE)
    found = model.project(mean + torch.tensor([[3.0, 4.0, 5.0]]))
    np.testing.assert_allclose(found, [[1.6, 2.8, 8.0]])


def test_with_a_linear_part_a_projection_is_in_its_subspace():
    mean = torch.tensor([1.0, 2.0, 3.0])
    part = LinearPart(mean, torch.eye(3)[:2], torch.ones(2), complement=1.0)
    model = Model(WorkingCoordinates(mean, torch.eye(3)[:2]), CIRCLE, linear_part=part)
    np.testing.assert_allclose(model.project(mean + torch.tensor([[3.0, 4.0, 5.0]])), [[1.6, 2.8, 3.0]])


def test_the_least_deviation_is_that_of_any_part():
    coordinates = WorkingCoordinates(torch.zeros(2), torch.diag(torch.tensor([0.5, 4.0])))
    assert Model(coordinates, None).least_deviation == 0.25
    for variances, complement, expected in (([4.0, 0.01], 9.0, 0.1), ([4.0], 0.0025, 0.05), ([], 1.0, 0.25)):
        part = LinearPart(torch.zeros(2), torch.eye(2)[: len(variances)], torch.tensor(variances).double(), complement)
        np.testing.assert_allclose(Model(coordinates, None, linear_part=part).least_deviation, expected)


def test_a_score_of_which_nothing_is_known_is_shared_evenly():
    found = _adding_up(
        torch.tensor([[0.0, 0.0], [1.0, 3.0], [0.125, 0.375]], dtype=torch.float64),
        torch.tensor([5.0, 8.0, 8.0], dtype=torch.float64),
    )
    np.testing.assert_array_equal(found, [[2.5, 2.5], [2.0, 6.0], [2.0, 6.0]])


@pytest.mark.parametrize("factor", [1e-120, 1e-3, 1e120])
def test_a_multiple_of_a_polynomial_is_shared_out_alike(factor):
    """Near, where gradients are short, and far away."""
    coordinates = WorkingCoordinates(torch.zeros(2).double(), torch.eye(2).double())
    points = torch.tensor([[1e-3, 2e-3], [0.3, 0.4], [30.0, 40.0]], dtype=torch.float64)
    circle = CIRCLE.to(dtype=torch.float64)
    expected = Model(coordinates, circle).contributions(points)
    np.testing.assert_allclose(expected[:, 1] / expected[:, 0], [4, 16 / 9, 16 / 9])
    found = Model(coordinates, circle.scaled(factor)).contributions(points)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_shares_do_not_depend_on_the_length_of_a_gradient():
    """Squares of gradients would have lost their digits in float32."""
    model = Model(WorkingCoordinates(torch.zeros(2), torch.eye(2)), CIRCLE)
    found = model.contributions(torch.tensor([[3.0, 4.0]]) * torch.tensor([[1.0], [1e-10], [1e-22]]))
    np.testing.assert_allclose(found[:, 1] / found[:, 0], 16 / 9, rtol=1e-5)
