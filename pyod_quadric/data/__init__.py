"""Rows from anywhere: arrays, tensors, files, folders, loaders; the only room that reads tables.

``sources``
    files and folders as sources of rows
``rows``
    :class:`Rows`: any source, read by index or block by block
``batches``
    shuffled batches for training
``stream``
    a bounded sample of a stream
"""
