"""Slow and obvious NumPy/SciPy versions of every formula, written from the definitions and sharing no code."""

import itertools
import math

import numpy as np
import scipy.linalg


def pack(matrix):
    d = len(matrix)
    return np.array([matrix[i][j] * (1 if i == j else math.sqrt(2)) for i in range(d) for j in range(i, d)])


def unpack(vector, d):
    matrix = np.zeros((d, d))
    entries = iter(vector)
    for i in range(d):
        for j in range(i, d):
            matrix[i, j] = matrix[j, i] = next(entries) / (1 if i == j else math.sqrt(2))
    return matrix


def coefficients(A, b, c):
    d = len(b)
    quadratic = [A[i, j] * (1 if i == j else 2) for i in range(d) for j in range(i, d)]
    return np.array([*quadratic, *b, c])


def monomials(p):
    d = len(p)
    return np.array([*(p[i] * p[j] for i in range(d) for j in range(i, d)), *p, 1.0])


def value(p, A, b, c):
    return float(sum(A[i, j] * p[i] * p[j] for i in range(len(p)) for j in range(len(p))) + b @ p + c)


def gradient(p, A, b, c, step=1e-3):
    """Central differences, which are exact for quadratics up to rounding."""
    steps = step * np.eye(len(p))
    return np.array([(value(p + e, A, b, c) - value(p - e, A, b, c)) / (2 * step) for e in steps])


def compose(A, b, c, matrix, shift):
    """Recover the coefficients of f ∘ θ from values at enough points."""

    def composed(x):
        return value(matrix @ x + shift, A, b, c)

    e = matrix.shape[1]
    unit = np.eye(e)
    constant = composed(np.zeros(e))
    linear = np.array([(composed(u) - composed(-u)) / 2 for u in unit])
    quadratic = np.empty((e, e))
    for i, j in itertools.product(range(e), repeat=2):
        both, one, other = composed(unit[i] + unit[j]), composed(unit[i]), composed(unit[j])
        quadratic[i, j] = (both - one - other + constant) / 2
    return quadratic, linear, constant


def hs_inner(A, B):
    return np.trace(A.T @ B)


def approximation_distance(p, A, b, c, order):
    """The root of Σ c_l t^l from the Taylor coefficients C_I at p, as in the paper's appendix on orders."""
    d = len(p)
    slope = 2 * A @ p + b
    taylor = {}
    for i in range(d):
        taylor[tuple(int(k == i) for k in range(d))] = slope[i]
        for j in range(i, d):
            index = np.bincount([i, j], minlength=d)
            taylor[tuple(index)] = A[i, i] if i == j else 2 * A[i, j]
    polynomial = np.zeros(order + 1)
    polynomial[0] = abs(value(p, A, b, c))
    for index, coefficient in taylor.items():
        degree = sum(index)
        if degree <= order:
            multinomial = math.factorial(degree) / math.prod(math.factorial(k) for k in index)
            polynomial[degree] += coefficient**2 / multinomial
    polynomial[1:] = -np.sqrt(polynomial[1:])
    if polynomial[0] == 0:
        return 0.0
    if not polynomial[1:].any():
        return math.inf
    roots = np.roots(polynomial[::-1])
    real = roots[np.abs(roots.imag) <= 1e-6 * np.abs(roots)].real
    return float(real[real >= 0].min())


def geometric_distance(p, A, b, c):
    """The smallest norm among all stationary points, from all real roots of the secular polynomial.

    For generic quadrics in few dimensions: degenerate ones are tested against formulas of their own.
    """
    eigenvalues, basis = np.linalg.eigh(A)
    slopes = basis.T @ (2 * A @ p + b)
    poly = np.polynomial.Polynomial
    factors = [poly([1, e]) for e in eigenvalues]
    squares = [factor**2 for factor in factors]
    total = value(p, A, b, c) * math.prod(squares, start=poly([1]))
    for i, (e, s) in enumerate(zip(eigenvalues, slopes, strict=True)):
        others = math.prod((square for j, square in enumerate(squares) if j != i), start=poly([1]))
        total = total - s**2 / 4 * poly([0, 2, e]) * others
    candidates = []
    for root in total.roots():
        if abs(root.imag) < 1e-6 * (1 + abs(root)):
            y = -root.real * slopes / (2 * (1 + root.real * eigenvalues))
            candidates.append(np.linalg.norm(y))
    return min(candidates, default=math.inf)


def spectral_values(points, n_quadrics, inner_product):
    """The smallest mean squared values by SciPy's generalised eigensolver on the full coefficient space.

    The Gram matrix of an inner product can be singular and the moments are not, so the pencil is turned around: the
    smallest values are the reciprocals of the largest.
    """
    features = np.array([monomials(p) for p in points])
    moments = features.T @ features / len(points)
    size, d = features.shape[1], points.shape[1]
    if inner_product == "coefficient":
        gram = np.eye(size)
    elif inner_product == "hs":
        pairs = [(i, j) for i in range(d) for j in range(i, d)]
        gram = np.diag([*(1.0 if i == j else 0.5 for i, j in pairs), *np.zeros(d + 1)])
    else:
        gram = np.zeros((size, size))
        for p in points:
            jacobian = np.array([monomial_gradients(p, k) for k in range(d)])  # (d, D)
            gram += jacobian.T @ jacobian / len(points)
    largest = scipy.linalg.eigh(gram, moments, eigvals_only=True)[::-1]
    return 1 / largest[:n_quadrics]


def monomial_gradients(p, k):
    """The derivative of every monomial along axis k."""
    d = len(p)
    quadratic = [(i == k) * p[j] + (j == k) * p[i] for i in range(d) for j in range(i, d)]
    return np.array([*quadratic, *(float(i == k) for i in range(d)), 0.0])


def held_out_variances(folds, left_out=None):
    """Mean over rows, all or without those of a fold, of their squares along the principal axes of other folds."""
    seen = []
    for j, fold in enumerate(folds):
        others = np.concatenate([other for i, other in enumerate(folds) if i != j])
        mean = others.mean(axis=0)
        axes = np.linalg.svd(others - mean, full_matrices=False)[2]
        if j != left_out:
            seen += [((row - mean) @ axes.T) ** 2 for row in fold]
    return np.mean(seen, axis=0)


def decreasing(numbers):
    """Isotonic regression by its minimax formula: the least, over starts, of the largest mean of a run that ends later."""
    n = len(numbers)
    rising = -np.asarray(numbers)
    return -np.array([max(min(rising[i : j + 1].mean() for j in range(k, n)) for i in range(k + 1)) for k in range(n)])


def robust(similarity, score_x, score_y, cutoff, fill_value):
    return similarity if max(score_x, score_y) < cutoff else fill_value


def identification_rate(similarity, labels, to_distractors, rate):
    """Return IR, Full IR, and the infimum of the thresholds that let at most a share of the different pairs pass.

    Between two neighbouring similarities nothing changes, so it is enough to try one threshold in each gap and beyond the ends.
    """
    pairs = list(itertools.combinations(range(len(labels)), 2))
    genuine = [pair for pair in pairs if labels[pair[0]] == labels[pair[1]]]
    different = [similarity[pair] for pair in pairs if labels[pair[0]] != labels[pair[1]]]
    ends = [-math.inf, *sorted({similarity[pair] for pair in pairs}), math.inf]
    gaps = itertools.pairwise(ends)  # thresholds above low, up to high
    low, high = next(gap for gap in gaps if not different or np.mean([s >= gap[1] for s in different]) <= rate)
    accepted = [pair for pair in genuine if similarity[pair] >= high]
    full = [p for p in accepted if all(similarity[p] > max(row[p[0]], row[p[1]]) for row in to_distractors.T)]
    return len(accepted) / len(genuine), len(full) / len(genuine), low


def wold_ratios(rows, folds):
    """Predict every entry of every held-out row by least squares on its other entries, with 1, 2, ... axes of the others."""
    d = rows.shape[1]
    centred = rows - rows.mean(axis=0)
    ratios = []
    for k in range(1, d):
        press = 0.0
        for fold in np.unique(folds):
            others = rows[folds != fold]
            axes = np.linalg.svd(others - others.mean(axis=0), full_matrices=False)[2][:k]  # (k, d)
            for row in rows[folds == fold] - others.mean(axis=0):
                for j in range(d):
                    rest = np.arange(d) != j
                    scores = np.linalg.lstsq(axes[:, rest].T, row[rest], rcond=None)[0]
                    press += (row[j] - axes[:, j] @ scores) ** 2
        kept = np.linalg.svd(centred, full_matrices=False)[2][: k - 1]
        left = centred - centred @ kept.T @ kept
        ratios.append(press / (left**2).sum())
    return np.array(ratios)
