"""Floor 2: from a PyTorch op to its TBE operators, and CANN's own dump files.

`table` says which TBE operators an op is, `support` what of a model has any. `cann` reads and
writes dump files, `convert` makes other files of them. The replay of one recorded op under ACL dump
is to come. It imports `npu_core` and `dumper`, and knows nothing of comparison.
"""
