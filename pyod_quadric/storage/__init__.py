"""Bytes that are whole or not there.

``atomic``
    files that appear at once, when they are complete
``container``
    tensors and a document in one file, with a version and a checksum
``checkpoints``
    states of a run that survive a kill
"""
