"""What is measured; run one with ``python -m examples.benchmarks.speed``."""
