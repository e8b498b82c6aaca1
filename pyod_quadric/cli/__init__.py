"""The command ``pyod-quadric``.

``errors``
    what ends a command
``parser``
    the arguments of all commands; imports nothing heavy
``main``
    parses, imports the command and runs it; exit codes
``inputs``
    rows and models that commands read, and what becomes of NaN
``outputs``
    files that are whole or not there, notes and tables
``fit``, ``score``, ``drift``, ``explain``, ``report``, ``compare``, ``robustness``, ``info``
    the commands
"""
