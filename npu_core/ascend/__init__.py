"""The names of Ascend's software that scripts call: `torch.npu`, `torch_npu`, tensor methods.

What they do lies below, in npu_core itself; here is only how it is called on the device.
"""
