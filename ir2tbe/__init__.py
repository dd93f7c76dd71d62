"""Floor 2: what an IR is to the device's own operators, and the files that CANN writes of those.

So far `cann`: dump files read and written, and reports of overflows. To come are the table from IR
to TBE operators, the replay of one recorded op under ACL dump, and conversion between Ascend
formats. It imports `npu_core` and `dumper`, knows nothing of comparison, and plugs ACL dump into
the floors below through registries.
"""
