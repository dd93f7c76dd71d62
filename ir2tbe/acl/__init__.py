"""ACL dump of the emulated npu: what CANN writes of each operator while a dump is on.

    import torch
    torch.npu.init_dump()
    torch.npu.set_dump("acl.json")
    ...  # each op that runs on npu becomes the files of its TBE operators
    torch.npu.finalize_dump()

`serve` is what npu_core calls (through the entry point `npu_core.acl_dump`), `tap` sees one call,
`files` writes what it saw, `encode` and `stats` say how a tensor stands in a file.
"""
