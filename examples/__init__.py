"""Runnable examples; each has a ``main`` that the tests call."""
