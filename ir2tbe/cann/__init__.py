"""Files that CANN writes while it dumps operators: names, contents, and reports of overflows.

`file.read` opens one dump file and `file.write` makes one; `opdebug` reads what an overflow leaves
besides; `overflow` finds both in a folder. numpy, ml_dtypes and protobuf only, no torch.
docs/cann.md has every byte.
"""
