"""Floor 2, not built yet: importing this package gives nothing.

It will own the table from IR to TBE operators, the replay of one recorded op under ACL dump, CANN
dump files read and written, and conversion between Ascend formats. It will import `npu_core` and
`dumper`, know nothing of comparison, and plug ACL dump into the floors below through registries.
"""
