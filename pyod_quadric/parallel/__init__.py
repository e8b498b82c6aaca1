"""Where computations run: processes, threads, devices.

``devices``
    devices by name, and tensors on their way to them
``ranks``
    several processes that fit one model together
``peers``
    what becomes of a joint fit when one of them is missing, or fails
``group``
    the process group of a command that torchrun has started
``threads``
    no more threads than cores where joblib runs several fits
"""
