"""What is measured: speed, orthonormality, penalty against manifold; run one with ``python -m examples.benchmarks.speed``."""
