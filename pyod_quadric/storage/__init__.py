"""Files that are complete or absent.

``atomic``
    files that appear only when they are complete
``layout``
    the values of a file, and the type and range of each
``container``
    tensors and a document in one file, with a version and a checksum
``checkpoints``
    states of a run, from which it resumes after a kill
"""
