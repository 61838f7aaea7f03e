"""Run the given programs one after the other in one process; a failure names its program."""

import runpy
import sys
import traceback

failed = 0
for path in sys.argv[1:]:
    try:
        runpy.run_path(path, run_name="__main__")
    except BaseException:
        failed += 1
        print(f"FAILED {path}", file=sys.stderr)
        traceback.print_exc()
sys.exit(failed)
