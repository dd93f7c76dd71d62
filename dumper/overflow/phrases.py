"""What people read of overflows, in English and in Chinese: one table, by name.

No torch.
"""

from __future__ import annotations

from ..language import Spoken

PHRASES: dict[str, tuple[str, str]] = {
    # the headline
    "no overflow": ("no overflow", "没有溢出"),
    "only intended": (
        "no overflow; {count} ops took or made an infinity, or the lowest number, that the program "
        "asked for",
        "没有溢出；{count} 个算子读取或产生了程序有意写入的无穷或最小值",
    ),
    "nothing checked": (
        "nothing was checked: no op ran while check_overflow=True was looking",
        "没有检查任何算子：check_overflow=True 期间没有算子运行",
    ),
    "one only intended": (
        "no overflow; 1 op took or made an infinity, or the lowest number, that the program "
        "asked for",
        "没有溢出；1 个算子读取或产生了程序有意写入的无穷或最小值",
    ),
    "only handed on": (
        "no op overflowed: infinity or NaN came into the step from outside, first {place}: {what}",
        "没有算子溢出：无穷或 NaN 来自这一步之外，最先见于 {place}：{what}",
    ),
    "first": ("the first overflow is {place}: {what}", "第一处溢出是 {place}：{what}"),
    "skipped": (
        "an overflow in gradients scaled by {scale}, and the loss scaler skipped the step: no "
        "fault; it began at {place}: {what}",
        "放大 {scale} 倍的梯度溢出，loss scaler 跳过了这一步：不是错误；起于 {place}：{what}",
    ),
    "skipped without scale": (
        "an overflow in gradients, and the loss scaler skipped the step: no fault; it began at "
        "{place}: {what}",
        "梯度溢出，loss scaler 跳过了这一步：不是错误；起于 {place}：{what}",
    ),
    "at scale 1": (
        "a step that overflows at loss scale 1: a fault",
        "loss scale 为 1 时这一步溢出：这是错误",
    ),
    "not skipped": (
        "it is among gradients scaled by {scale}, and the step was not skipped: a fault",
        "它在放大 {scale} 倍的梯度之中，而这一步没有被跳过：这是错误",
    ),
    "skipped besides": (
        "{count} overflows besides are in scaled gradients that the loss scaler skipped: no fault",
        "另有 {count} 处溢出在放大的梯度中，loss scaler 已跳过：不是错误",
    ),
    "one skipped besides": (
        "1 overflow besides is in scaled gradients that the loss scaler skipped: no fault",
        "另有 1 处溢出在放大的梯度中，loss scaler 已跳过：不是错误",
    ),
    # where
    "comma": (", ", "，"),
    "semicolon": ("; ", "；"),
    "place": ("{path} ({where})", "{path}（{where}）"),
    "module": ("module {module}", "模块 {module}"),
    "the model": ("the model itself", "模型本身"),
    "rank": ("rank {rank}", "rank {rank}"),
    "step": ("step {step}", "第 {step} 步"),
    "seqid": ("seqid {seqid}", "seqid {seqid}"),
    # what happened
    "does not fit": (
        "{value} does not fit {dtype} (largest {largest})",
        "{value} 超出 {dtype} 的范围（最大 {largest}）",
    ),
    "and stored": ("{what}, and {stored} was stored", "{what}，写入的是 {stored}"),
    "on the way": (
        "{stored} was returned; the exact result {value} fits {dtype}, so a step inside the op "
        "overflowed",
        "返回 {stored}；精确结果 {value} 在 {dtype} 范围内，溢出发生在算子内部的中间步骤",
    ),
    "exactly not finite": (
        "the result is {value} in exact arithmetic too",
        "即使精确计算，结果也是 {value}",
    ),
    "returned": (
        "{stored} was returned for inputs that hold none",
        "输入中没有 {stored}，结果却是 {stored}",
    ),
    "at the limit": (
        "{stored} was returned, the limit of {dtype}",
        "返回 {stored}，即 {dtype} 的极限",
    ),
    "register": (
        "the status register says that it overflowed",
        "状态寄存器表明发生了溢出",
    ),
    "began": ("an overflow began here", "溢出由此开始"),
    "again": ("{what}; it took again what {origin} made", "{what}；再次用到 {origin} 产生的值"),
    "ended at": ("{what}; it ended at {path}", "{what}；止于 {path}"),
    "came from": ("came from {path}", "来自 {path}"),
    "came with": ("came in with {origin}", "随 {origin} 进入"),
    "came in": ("came in from outside", "来自外部"),
    "went no further": ("{what}, and went no further", "{what}，到此为止"),
    "asked for": ("the program asked for it", "程序有意为之"),
    "asked for by": ("the program asked for it: {origin}", "程序有意为之：{origin}"),
    # the way and the element
    "way": ("the way there: {magnitudes}", "经过：{magnitudes}"),
    "earlier": ("({count} ops before these)", "（此前还有 {count} 个算子）"),
    "one earlier": ("(1 op before these)", "（此前还有 1 个算子）"),
    "element": ("element {element}: {what}", "元素 {element}：{what}"),
    "in float64": ("{value} in float64, stored as {stored}", "float64 中为 {value}，写入 {stored}"),
    "exact unknown": ("stored as {stored}", "写入 {stored}"),
    "of elements": ("{count} of {size} elements", "{size} 个元素中有 {count} 个"),
    "equals": ("{argument} = {value}", "{argument} = {value}"),
    "numbers": (
        "{argument}: {count} numbers from {low} to {high}; largest {values}",
        "{argument}：{count} 个数，从 {low} 到 {high}；绝对值最大的 {values}",
    ),
    "more inputs": ("and {count} more inputs", "还有 {count} 个输入"),
    "one more inputs": ("and 1 more input", "还有 1 个输入"),
    "call": ("called by {api}", "由 {api} 调用"),
    "status": ("status register {bits}: {words}", "状态寄存器 {bits}：{words}"),
    "went on": ("it went on through {count} ops", "此后经过了 {count} 个算子"),
    "one went on": ("it went on to 1 op", "此后传到 1 个算子"),
    # the list
    "events": ("{count} events: {kinds}", "{count} 个事件：{kinds}"),
    "one events": ("1 event: {kinds}", "1 个事件：{kinds}"),
    "of kind": ("{count} {kind}", "{kind} {count}"),
    "more events": ("and {count} more: {kinds}", "还有 {count} 个：{kinds}"),
    "one more events": ("and 1 more: {kinds}", "还有 1 个：{kinds}"),
    "created": ("created", "产生"),
    "saturated": ("saturated", "饱和"),
    "propagated": ("propagated", "传播"),
    "masked": ("masked", "被屏蔽"),
    "intended": ("intended", "有意"),
    # what to do
    "next": ("what to do: {what}", "怎么办：{what}"),
    "do nothing": (
        "nothing, unless every step is skipped",
        "无需处理，除非每一步都被跳过",
    ),
    "do outside": (
        "look at what the step was given: the data, the weights, the checkpoint",
        "检查这一步得到的内容：数据、权重、检查点",
    ),
    "do masked row": (
        "its input holds a row of -inf only: leave one place of each row unmasked, or mask by a "
        "large finite number",
        "它的输入有一行全是 -inf：每行至少留一个未屏蔽的位置，或改用很大的有限数做掩码",
    ),
    "do again": (
        "a mask behind {origin} hides its result and not its gradient: mask what goes into it",
        "屏蔽 {origin} 的结果并不能屏蔽它的梯度：请屏蔽它的输入",
    ),
    "do scale": (
        "lower the loss scale, or let a scaler choose it (torch.amp.GradScaler)",
        "降低 loss scale，或让 scaler 自动选择（torch.amp.GradScaler）",
    ),
    "do float8": (
        "scale the tensor into the range of {dtype} before the cast",
        "转换前先把张量缩放到 {dtype} 的范围内",
    ),
    "do wider": (
        "compute this op in float32 or bfloat16, or make its inputs smaller",
        "用 float32 或 bfloat16 计算该算子，或减小它的输入",
    ),
    "do smaller": (
        "make its inputs smaller: the largest are shown above, with the way they grew",
        "减小它的输入：上面列出了最大的输入和增大的经过",
    ),
    "do arithmetic": (
        "no dtype helps: keep its inputs out of where the op is not defined (0, a negative number, "
        "two infinities)",
        "换数据类型没有用：避免让输入落在该算子无定义之处（0、负数、两个无穷）",
    ),
    # several files, and what is said of a file
    "file": ("rank {rank}: {path}", "rank {rank}：{path}"),
    "from values": (
        "no overflow check was recorded, so this is told from the values in the file",
        "文件中没有溢出检查的记录，以下结论来自文件中的数值",
    ),
    # head-room
    "nearest": (
        "head-room: bits left before the largest number of an op's own dtype, the least first",
        "余量：距离算子自身数据类型最大值的位数，从少到多",
    ),
    "all far": (
        "head-room: {bits} bits or more are left in every op (the least: {op})",
        "余量：每个算子至少还有 {bits} 位（最少的是 {op}）",
    ),
    "left": (
        "{bits} bits left of {dtype}, largest {magnitude}{where}",
        "{dtype} 还剩 {bits} 位，最大 {magnitude}{where}",
    ),
    "would not fit": (
        "{count} of {size} outputs in float32, bfloat16 or float64 would not fit float16, the "
        "largest first",
        "{size} 个 float32、bfloat16 或 float64 输出中有 {count} 个超出 float16 的范围，从大到小",
    ),
    "would fit": (
        "all {size} outputs in float32, bfloat16 or float64 would fit float16",
        "全部 {size} 个 float32、bfloat16 或 float64 输出都在 float16 的范围内",
    ),
    "one would fit": (
        "the one output in float32, bfloat16 or float64 would fit float16",
        "唯一的 float32、bfloat16 或 float64 输出在 float16 的范围内",
    ),
    "largest": ("largest {magnitude} in {dtype}{where}", "{dtype}，最大 {magnitude}{where}"),
    # underflow
    "underflow": (
        "underflow: of non-zero values, the share that would become 0, or lose digits as subnormal",
        "下溢：非零值中会变为 0、或成为次正规数而丢失精度的比例",
    ),
    "no underflow": (
        "underflow: none of the non-zero values would become 0 or subnormal in {formats}",
        "下溢：没有非零值会在 {formats} 中变为 0 或次正规数",
    ),
    "would become": (
        "{zero} become 0, {subnormal} subnormal",
        "{zero} 变为 0，{subnormal} 成为次正规数",
    ),
    "worst": ("worst {op}: {zero} become 0{where}", "最差 {op}：{zero} 变为 0{where}"),
    "gradients": (
        "gradients of which most would become 0 in float16:",
        "在 float16 中变为 0 最多的梯度：",
    ),
    "vanished": (
        "ops that lost values to 0 already, by exact arithmetic:",
        "按精确计算，已有值变成 0 的算子：",
    ),
    "of zeros": (
        "{share} of its values became 0 in {dtype}{where}",
        "{share} 的值在 {dtype} 中变成了 0{where}",
    ),
    "more ops": ("and {count} more", "还有 {count} 个"),
    "sampled": (
        "shares are of samples: {sample} of {size} elements were looked at",
        "比例来自抽样：查看了 {size} 个元素中的 {sample} 个",
    ),
    # loss scale
    "scales": (
        "loss scale: smallest that keeps {kept} of gradients: {smallest}; largest that is safe: "
        "{largest}; now {current}: {now}",
        "loss scale：保住 {kept} 梯度的最小值 {smallest}；安全的最大值 {largest}；现在 "
        "{current}：{now}",
    ),
    "vanish now": (
        "{share} of gradients become 0 in {format}",
        "{share} 的梯度在 {format} 中变为 0",
    ),
    "overflow now": ("gradients overflow {format}", "梯度超出 {format} 的范围"),
    "vanished now": (
        "{share} of what backward computed became 0 already",
        "反向计算的值中已有 {share} 变为 0",
    ),
    "at least": ("at least {scale}", "至少 {scale}"),
    "at most": ("at most {scale}", "至多 {scale}"),
    "no end": ("any", "任意"),
    "conflict": (
        "no scale does both: keep the widest gradients in bfloat16 or float32",
        "没有同时满足两者的 scale：请把范围最大的梯度保留为 bfloat16 或 float32",
    ),
    "set scale": (
        "set the loss scale between {smallest} and {largest}",
        "把 loss scale 设在 {smallest} 与 {largest} 之间",
    ),
    "scale is right": ("the loss scale is right", "loss scale 合适"),
}


class Say(Spoken):
    """These phrases in one language."""

    phrases = PHRASES
