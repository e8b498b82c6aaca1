"""The command ``pyod-quadric``.

``errors``
    what ends a command
``columns``
    which columns of a table are features
``arrow``
    .csv, .tsv and .parquet files, a batch at a time
``tables``
    rows of any file, a block at a time, and what becomes of NaN
``outputs``
    files that are whole or not there
``options``
    what several commands have in common
``fit``, ``score``, ``explain``, ``compare``, ``robustness``, ``info``
    the commands
``main``
    the parser, and exit codes
"""
