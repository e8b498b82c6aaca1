"""Processes, threads and devices.

``devices``
    devices by name, and tensors on their way to them
``ranks``
    several processes that fit one model together
``peers``
    errors of a joint fit if a process is missing or fails
``group``
    the process group of a command that torchrun has started
``threads``
    one thread for each of several fits run by joblib
"""
