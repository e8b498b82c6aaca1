"""Bytes that are whole or not there.

``atomic``
    files that appear at once, when they are complete
``layout``
    which values a file holds, and what each of them may be
``container``
    tensors and a document in one file, with a version and a checksum
``checkpoints``
    states of a run that survive a kill
"""
