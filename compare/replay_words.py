"""What people read of a replay, in English and in Chinese."""

from __future__ import annotations

from dumper.language import Spoken


class Words(Spoken):
    """The phrases of one language."""

    phrases = {
        "begin": (
            "{count} records are run on {device}:",
            "在 {device} 上重新运行 {count} 条记录：",
        ),
        "one begin": ("1 record is run on {device}:", "在 {device} 上重新运行 1 条记录："),
        "none": ("no dump file", "没有 dump 文件"),
        "same": ("its result is the recorded one, bit for bit", "结果与记录逐位相同"),
        "other": ("its result is not the recorded one", "结果与记录不同"),
        "unknown": ("the record holds no result", "记录中没有结果"),
        "idle": ("  {count} others run no operator", "  另有 {count} 条记录不运行算子"),
        "one idle": ("  1 other runs no operator", "  另有 1 条记录不运行算子"),
        "files": ("{count} dump files in {folder}", "{folder} 中有 {count} 个 dump 文件"),
        "one files": ("1 dump file in {folder}", "{folder} 中有 1 个 dump 文件"),
    }
