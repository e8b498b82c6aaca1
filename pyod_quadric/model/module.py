"""The fitted score as a torch module and as an ONNX graph.

The score is that of :class:`pyod_quadric.model.Model`, in operations that torch can trace: rows are not validated, and no loop
depends on their number. Buffers and computations are in float64, whatever the type of the rows: near a quadric the polynomial
is a small difference of large terms, which in float32 depends on the order of summation.
"""

from importlib.util import find_spec

import torch
from torch import Tensor, nn

from pyod_quadric.data.rows import normalized, scaled, within_reach
from pyod_quadric.geometry.distances import ratio, second_order_from
from pyod_quadric.geometry.quadrics import BLOCK_NUMBERS, BLOCK_ROWS, evaluate, hs_norm
from pyod_quadric.model.calibration import Calibration
from pyod_quadric.model.model import MOST_SCORE, Model, far
from pyod_quadric.model.neighbors import half_squares, nearest_rows
from pyod_quadric.model.norms import EMPTY, SHORTEST, USUAL

OPSET = 18  # of the ONNX graph: the one that torch writes without converting
INPUT_NAME, OUTPUT_NAMES = "rows", ("scores", "p_values")


class ScoreModule(nn.Module):
    """Differentiable outlier scores (n,) of raw rows (n, d), and p-values on request. The fitted numbers are buffers.

    Rows may have any floating-point type. Computations and scores have the type of the buffers: float64, unless ``to(dtype)``
    or ``float()`` changes it. Rows are not validated: NaN gives the largest score, not an error.

    Parameters
    ----------
    model : Model
    calibration : Calibration, optional
        If given, the module returns a pair: scores (n,) and p-values (n,).

    Examples
    --------
    >>> import torch
    >>> from pyod_quadric import Quadrics, WorkingCoordinates
    >>> circle = Quadrics(torch.eye(2)[None], torch.zeros(1, 2), torch.tensor([-1.0]))
    >>> identity = WorkingCoordinates(torch.zeros(2), torch.eye(2))
    >>> module = ScoreModule(Model(identity, circle))
    >>> module(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    tensor([0.0000, 0.8409], dtype=torch.float64)
    """

    mean: Tensor
    least_deviation: Tensor
    matrix: Tensor
    quadratic: Tensor | None
    linear: Tensor
    constant: Tensor
    hs_norms: Tensor
    weights: Tensor | None
    linear_mean: Tensor | None
    linear_axes: Tensor
    deviations: Tensor
    complement: Tensor
    norm_median: Tensor | None
    norm_spread: Tensor
    norm_weight: Tensor
    prototypes: Tensor | None
    prototypes_mean: Tensor
    prototypes_matrix: Tensor
    prototypes_weight: Tensor
    scales: Tensor | None
    knots: Tensor | None
    p_values: Tensor

    def __init__(self, model: Model, calibration: Calibration | None = None) -> None:
        super().__init__()
        coordinates, quadrics, part = model.coordinates, model.quadrics, model.linear_part
        self.n_features = len(coordinates.mean)
        self.normalize, self.distance = model.normalize, model.distance
        buffers = {"mean": coordinates.mean, "least_deviation": torch.tensor(model.least_deviation, dtype=torch.float64)}
        # What is not there is an attribute and no buffer, since torch.export miscounts buffers that are None.
        self.quadratic = self.weights = self.linear_mean = self.norm_median = self.prototypes = self.scales = self.knots = None
        if quadrics is not None:
            buffers |= {
                "matrix": coordinates.matrix,
                "quadratic": quadrics.quadratic,
                "linear": quadrics.linear,
                "constant": quadrics.constant,
            }
            buffers |= {} if model.quadric_weights is None else {"weights": model.quadric_weights}
            if model.distance == "second_order":
                buffers["hs_norms"] = hs_norm(quadrics.quadratic.double())
        if part is not None:
            buffers |= {"linear_mean": part.mean, "linear_axes": part.axes, "deviations": part.variances.double().sqrt()}
            if part.axes.shape[0] < part.axes.shape[1]:
                buffers["complement"] = torch.tensor(part.complement**0.5, dtype=torch.float64)
        if model.norms is not None:
            buffers["norm_median"] = torch.tensor(model.norms.median, dtype=torch.float64)
            buffers["norm_spread"] = torch.tensor(model.norms.spread, dtype=torch.float64)
            buffers["norm_weight"] = torch.tensor(model.norms.weight, dtype=torch.float64)
        if model.neighbors is not None:
            kept = model.neighbors
            buffers |= {"prototypes": kept.prototypes, "prototypes_weight": torch.tensor(kept.weight, dtype=torch.float64)}
            buffers |= {"prototypes_mean": kept.coordinates.mean, "prototypes_matrix": kept.coordinates.matrix}
        if model.scales is not None:
            buffers["scales"] = model.scales
        if calibration is not None:
            buffers |= {"knots": calibration.knots, "p_values": calibration.p_values}
        for name, tensor in buffers.items():
            self.__dict__.pop(name, None)
            self.register_buffer(name, tensor.to(torch.float64, copy=True))

    @property
    def dtype(self) -> torch.dtype:
        """The type of the buffers, in which scores are computed."""
        return next((buffer.dtype for buffer in self.buffers()), torch.float64)

    def forward(self, rows: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Return the scores (n,) of rows (n, d), and their p-values (n,) if the module has them."""
        scores = self._scores(rows)
        if self.knots is None:
            return scores
        # Graphs have no binary search; see Calibration.p_values_of.
        return scores, self.p_values[(scores.detach()[:, None] > self.knots).sum(dim=1)]

    def _scores(self, rows: Tensor) -> Tensor:
        rows = rows.to(self.dtype)
        rows = rows if self.scales is None else scaled(rows, self.scales)
        score = torch.zeros_like(rows[:, 0])
        if self.norm_median is not None:
            logarithms = torch.linalg.vector_norm(rows, dim=1).clamp(min=SHORTEST).log()
            deviations = (logarithms - self.norm_median).clamp(min=-EMPTY).abs() / self.norm_spread
            score = score + self.norm_weight * (deviations - USUAL).clamp(min=0).square()
        rows = normalized(rows) if self.normalize else rows
        rows = within_reach(rows, self.mean, self.least_deviation * far(rows.dtype).to(rows.device))
        if self.linear_mean is not None:
            score = score + self._linear_part(rows - self.linear_mean)
        if self.prototypes is not None:
            score = score + self._neighbors(rows, self.prototypes)
        if self.quadratic is not None:
            distances = self._distances(rows, self.quadratic)
            added = distances / distances.shape[1] if self.weights is None else distances.square() * self.weights
            score = score + added.sum(dim=1)
        return _bounded(score, min(MOST_SCORE, torch.finfo(score.dtype).max))

    def _linear_part(self, centred: Tensor) -> Tensor:
        """Return the squared Mahalanobis distances (n,); see :class:`pyod_quadric.model.linear.LinearPart`."""
        along = centred @ self.linear_axes.T
        squared = (along / self.deviations).square().sum(dim=1)
        if self.linear_axes.shape[0] == self.linear_axes.shape[1]:
            return squared
        return squared + ((centred - along @ self.linear_axes) / self.complement).square().sum(dim=1)

    def _neighbors(self, rows: Tensor, prototypes: Tensor) -> Tensor:
        """Return the weighted mean squared distances (n,); see :class:`pyod_quadric.model.neighbors.Neighbors`."""
        found = (rows - self.prototypes_mean) @ self.prototypes_matrix.T
        away = found[:, None] - prototypes[nearest_rows(found, prototypes, half_squares(prototypes))]
        return self.prototypes_weight * away.square().sum(dim=2).mean(dim=1)

    def _distances(self, rows: Tensor, quadratic: Tensor) -> Tensor:
        """Return the distance (n, m) of (normalised) rows to each quadric."""
        working = (rows - self.mean) @ self.matrix.T
        width = max(1, BLOCK_NUMBERS // (BLOCK_ROWS * working.shape[1]))  # bounds the memory for a batch of some thousand rows
        slices = [slice(start, start + width) for start in range(0, quadratic.shape[0], width)]
        blocks = [evaluate(working, quadratic[part], self.linear[part], self.constant[part])[1:] for part in slices]
        values, norms = (torch.cat(tensors, dim=1) for tensors in zip(*blocks, strict=True))
        if self.distance == "algebraic":
            return values.abs()
        gradient_norms = 2 * norms
        if self.distance == "first_order":
            return ratio(values.abs(), gradient_norms)
        return second_order_from(values, gradient_norms, self.hs_norms, _hypot)


def _hypot(a: Tensor, b: Tensor) -> Tensor:
    """Return the root of the sum of squares, which do not overflow here; ONNX has no hypot, and users export by torch alone."""
    return (a * a + b * b).sqrt()


def _bounded(numbers: Tensor, bound: float) -> Tensor:
    """Return the numbers, from -bound to bound, and bound for NaN."""
    # As a tensor, since ONNX graphs of torch have Python's numbers as float32.
    most = torch.tensor(bound, dtype=numbers.dtype).to(numbers.device)
    return torch.where(numbers.isnan(), most, torch.minimum(torch.maximum(numbers, -most), most))


def exported(module: ScoreModule, dtype: torch.dtype = torch.float32) -> torch.export.ExportedProgram:
    """Return the exported graph of a module, for any number of rows of a type."""
    device = next((buffer.device for buffer in module.buffers()), None)
    rows = torch.zeros(2, module.n_features, dtype=dtype, device=device)
    n_rows = torch.export.Dim("n", max=2**62)  # torch 2.6 asks for a bound
    return torch.export.export(module, (rows,), dynamic_shapes=({0: n_rows},), strict=False)


def onnx_bytes(module: ScoreModule, metadata: dict[str, str], dtype: torch.dtype = torch.float32) -> bytes:
    """Return the bytes of an ONNX file: a graph from ``rows`` (n, d) to the outputs of a module, for any n.

    Parameters
    ----------
    module : ScoreModule
    metadata : dict of str
        Further properties of the file.
    dtype : torch.dtype
        The type of the rows.
    """
    if find_spec("onnxscript") is None or find_spec("onnx") is None:
        raise ImportError("ONNX graphs are written with onnx and onnxscript: pip install 'pyod-quadric[onnx]'")
    program = torch.onnx.export(
        exported(module, dtype),
        input_names=[INPUT_NAME],
        output_names=list(OUTPUT_NAMES[: 1 if module.knots is None else 2]),
        opset_version=OPSET,
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    for node in proto.graph.node:
        node.ClearField("metadata_props")  # stack traces, with the folders of this machine
    proto.graph.ClearField("value_info")
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=value)
    content: bytes = proto.SerializeToString()
    return content
