"""The method on what another engine computed: dumps are read, compared and judged, and no engine of ours runs."""

from toolkit.judging.dumps import Dump, read_dump
from toolkit.judging.judgement import Judgement, judge_dumps

__all__ = ["Dump", "Judgement", "judge_dumps", "read_dump"]
