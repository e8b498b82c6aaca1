"""Where computations run: processes, threads, devices.

``devices``
    devices by name, and tensors on their way to them
``ranks``
    several processes that fit one model together
``group``
    the process group of a command that torchrun has started
``threads``
    no more threads than cores where joblib runs several fits
"""
