"""The local machine: devices, processes, memory, compilation cache, diagnosis."""
