"""A folder of CANN dump files against another, against npy files, or against an HDF5 dump.

`scan` finds the operators' files in order of execution; `pairs`, `originals` and `records` say what
of golden each of their tensors belongs to, `fusion` what a compiler made of the original ops;
`plain` brings both to one layout; `rows`, `table`, `report` and `phrases` are what comes of it.
docs/directories.md tells it from outside.
"""
