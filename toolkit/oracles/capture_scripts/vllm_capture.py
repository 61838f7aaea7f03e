"""Capture of vLLM, on whatever device its build is for: greedy and teacher forcing (prompt_logprobs), log-probabilities
only. Prefix caching is off, and nothing is compiled unless --compile is given."""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import common


def script() -> None:
    """Read the command line, ask, write the capture."""
    parser = common.arguments(__doc__)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--attention", help="VLLM_ATTENTION_BACKEND (default: vLLM's own choice)")
    parser.add_argument("--compile", action="store_true", help="let vLLM compile the model and capture graphs")
    parser.add_argument("--length", type=int, default=512, help="longest prompt and continuation together")
    options = common.checked(parser.parse_args())
    defaults = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a failure is then this process's own
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{options.threads - 1}" if options.threads > 1 else "0",
        "OMP_NUM_THREADS": str(options.threads),
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    if options.attention:
        os.environ["VLLM_ATTENTION_BACKEND"] = options.attention

    import vllm
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    items = common.read_items(options)
    common.say(f"loading {Path(options.model).name} in {options.dtype}")
    llm = LLM(
        options.model,
        dtype=options.dtype,
        max_model_len=options.length,
        max_num_seqs=options.batch,
        enforce_eager=not options.compile,
        enable_prefix_caching=False,
        max_logprobs=options.top,
        seed=0,
    )
    tokenizer = llm.get_tokenizer()
    for item in items:
        item["ids"] = item["ids"] or [int(i) for i in tokenizer(item["prompt"])["input_ids"]]
    longest = max(len(i["ids"]) + max(options.tokens, len(i["continuation"] or [])) for i in items)
    if longest >= options.length:
        raise common.Wrong(f"a prompt and its continuation take {longest} tokens; give --length {longest + 1} or more")

    def ask(prompts: list[list[int]], parameters: Any) -> list[Any]:
        answers: list[Any] = llm.generate([{"prompt_token_ids": ids} for ids in prompts], parameters, use_tqdm=False)
        for ids, answer in zip(prompts, answers, strict=True):
            if list(answer.prompt_token_ids) != ids:
                raise common.Wrong(f"vLLM was given the ids {ids[:8]} and reports {list(answer.prompt_token_ids)[:8]}")
        return answers

    greedy = SamplingParams(
        temperature=0, max_tokens=max(1, options.tokens), ignore_eos=True, logprobs=options.top, detokenize=False
    )
    runs = []
    for number in range(options.repeats if options.tokens else 0):
        common.say(f"run {number} of {options.repeats}, {len(items)} prompts")
        answers = ask([item["ids"] for item in items], greedy)
        runs.append([steps_of(answer.outputs[0], options.top) for answer in answers])
    forced_parts = []
    if options.forced:
        common.say(f"forced, {len(items)} prompts")
        score = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=options.top, detokenize=False)
        answers = ask([item["ids"] + item["continuation"] for item in items], score)
        forced_parts = [forced(item, answer, options.top) for item, answer in zip(items, answers, strict=True)]
    head = {
        "oracle": f"vllm-{current_platform.device_type}",
        "version": vllm.__version__,
        "libraries": common.versions("torch", "transformers", "tokenizers", "numpy", "triton"),
        "dtype": options.dtype,
        "attn": options.attention,
        "device": current_platform.device_type,
        "compiled": options.compile,
        "vocabulary": llm.llm_engine.model_config.get_vocab_size(),
        "bos": tokenizer.bos_token_id,
    }
    common.write(options, head, common.assemble(options, items, runs, forced_parts, tokenizer.decode))


def best(found: dict[int, Any], top: int) -> list[list[Any]]:
    """vLLM's candidates of one step, best first and lowest id first among equals; one more than asked for may be there."""
    ordered = sorted(((value.logprob, token) for token, value in found.items()), key=lambda x: (-x[0], x[1]))
    return [[int(token), None, common.number(logprob)] for logprob, token in ordered[:top]]


def steps_of(output: Any, top: int) -> dict[str, Any]:
    """A greedy answer as a capture has it."""
    return {"tokens": [int(t) for t in output.token_ids], "steps": [best(found, top) for found in output.logprobs]}


def forced(item: dict[str, Any], answer: Any, top: int) -> dict[str, Any]:
    """What was said before each token of a given continuation."""
    rows = answer.prompt_logprobs[len(item["ids"]) :]
    steps = [best(row, top) for row in rows]
    return {
        "continuation": item["continuation"],
        "logprobs": [common.number(row[t].logprob) for row, t in zip(rows, item["continuation"], strict=True)],
        "tokens": [step[0][0] for step in steps],
        "steps": steps,
    }


if __name__ == "__main__":
    common.main(script)
