"""Quadrics and distances to them: pure functions of tensors, with torch alone.

``packing``
    symmetric matrices as vectors, Hilbert-Schmidt geometry as Euclidean geometry
``frames``
    orthonormal frames: CholeskyQR, polar factors
``quadrics``
    :class:`Quadrics`: values, gradients, inner products, composition with maps
``distances``
    algebraic, first-order and second-order distance from points to quadrics
``exact``
    the exact distance to a single quadric
``projection``
    the nearest point on an intersection
``zero_sets``
    zero sets in the plane and in space, as segments and triangles
"""
