"""How fast one GPU decodes: recorded steps, launched eagerly one by one.

    python -m tests.gpu.decode_speed [--shape Qwen3-0.6B] [--json OUT]

Time per token is the difference between a long and a short generation, divided by the tokens between them, so that the
prefill cancels. The bandwidth to hold it against is that of a device-to-device copy in the same run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.gpu.random_models import SHAPES, checkpoint, parameters
from toolkit.devices.gpu import GpuDevice
from toolkit.engine import Engine
from toolkit.engine.decode import RecordedStep

COPY_BYTES = 2 << 30


def copy_bandwidth(device: GpuDevice) -> float:
    """Bytes read and written per second by a copy of 2 GiB: the best of ten."""
    cupy = device._cupy
    source = cupy.zeros(COPY_BYTES, np.uint8)
    target = cupy.empty_like(source)
    seconds = []
    for _ in range(10):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        target.data.copy_from_device_async(source.data, COPY_BYTES)
        end.record()
        end.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(begin, end) / 1000)
    return 2 * COPY_BYTES / min(seconds)


def measure(shape: str, *, batch: int = 1, prompt: int = 128, tokens: int = 128, repeats: int = 5) -> dict[str, Any]:
    device = GpuDevice()
    made = checkpoint(shape)
    begin = time.perf_counter()
    engine = Engine(made, device)
    device.synchronize()
    loading = time.perf_counter() - begin
    random = np.random.default_rng(0)
    prompts = [random.integers(0, made.config.vocab_size, prompt).tolist() for _ in range(batch)]

    def seconds(new_tokens: int) -> float:
        device.synchronize()
        start = time.perf_counter()
        engine.generate(prompts, new_tokens, stop=False, top=0)
        return time.perf_counter() - start

    seconds(tokens + 1)  # compiles, and sizes the cache
    prefill = statistics.median(seconds(1) for _ in range(repeats))
    whole = [seconds(tokens + 1) for _ in range(repeats)]
    per_token = (statistics.median(whole) - prefill) / tokens
    assert engine._recorded is not None
    step: RecordedStep[Any] = engine._recorded.run
    bandwidth = copy_bandwidth(device)
    read = 2 * parameters(made)
    return {
        "shape": shape,
        "batch": batch,
        "prompt tokens": prompt,
        "new tokens": tokens,
        "dtype": "bfloat16",
        "repeats": repeats,
        "tokens per second": batch / per_token,
        "milliseconds per step": per_token * 1e3,
        "slowest and fastest": [batch * tokens / (max(whole) - prefill), batch * tokens / (min(whole) - prefill)],
        "launches per step": len(step._recording.calls),
        "weight bytes per step": read,
        "copy bandwidth, bytes per second": bandwidth,
        "fraction of the copy bandwidth": read / per_token / bandwidth,
        "prefill seconds": prefill,
        "weights to the device, seconds": loading,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="Qwen3-0.6B")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    measured = measure(options.shape, batch=options.batch)
    text = json.dumps(measured, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
