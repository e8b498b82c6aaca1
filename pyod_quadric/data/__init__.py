"""Rows from anywhere: arrays, tensors, files, folders, loaders; the only room that reads and writes tables.

``columns``
    which columns of a table are features
``sources``
    :class:`RowSource`: rows with a type and names, by random access or in one pass; arrays, subsets, shards
``disk``
    ``.npy`` and ``.npz`` files
``arrow``
    access to pyarrow, an optional dependency
``parquet``
    ``.parquet`` files
``text``
    rows as lines, in files and on the standard input
``delimited``
    ``.csv`` and ``.tsv`` files
``json_lines``
    ``.jsonl`` and ``.ndjson`` files
``files``
    from paths to sources, for every kind of file
``memory``
    lists, tensors, columns of tables and data sets as one array or tensor
``rows``
    :class:`Rows`: any source or loader as tensors, by index or block by block
``finite``
    the rows without NaN or infinite entries
``groups``
    rows that are held out together
``batches``
    shuffled batches for training
``stream``
    a bounded sample of a stream
``writers``
    columns of results in files
"""
