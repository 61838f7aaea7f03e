"""The safetensors files of a folder: one model.safetensors, or shards and the index that maps tensors to shards."""

from __future__ import annotations

from pathlib import Path

from toolkit.checkpoints import safetensors, strict_json
from toolkit.checkpoints.safetensors import File
from toolkit.errors import ToolkitError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

# The vendor's own copy of the weights under other names, which Mistral and Llama ship beside model*.safetensors.
VENDOR_COPY = "consolidated"


def open_folder(folder: Path) -> dict[str, tuple[File, safetensors.Entry]]:
    """Every tensor of the folder by name, with the file that holds it.

    Raises ToolkitError when there are no weights, when a shard is missing, truncated or left over, and when a tensor
    is where the index does not say it is, in two shards, or in none.
    """
    present = sorted(path.name for path in folder.glob("*.safetensors") if not path.name.startswith(VENDOR_COPY))
    has_index = (folder / INDEX).exists()
    if has_index:
        return _open_shards(folder, present)
    if SINGLE not in present:
        raise _no_weights(folder, present)
    _refuse_left_over(folder, set(present) - {SINGLE}, f"beside {SINGLE}")
    single = safetensors.open_file(folder / SINGLE)
    return {name: (single, entry) for name, entry in single.entries.items()}


def _open_shards(folder: Path, present: list[str]) -> dict[str, tuple[File, safetensors.Entry]]:
    index = folder / INDEX
    mapped_to = _weight_map(index)
    shards = sorted(set(mapped_to.values()))
    for shard in shards:
        if shard not in present:
            raise ToolkitError(f"{index} names the shard {shard!r:.120}, which is not in the folder; download it")
    _refuse_left_over(folder, set(present) - set(shards), f"that {INDEX} does not name")

    found: dict[str, tuple[File, safetensors.Entry]] = {}
    for shard in shards:
        file = safetensors.open_file(folder / shard)
        for name, entry in file.entries.items():
            if name in found:
                raise ToolkitError(
                    f"{folder}: tensor {name!r:.120} is in both {found[name][0].path.name} and {shard}; "
                    "one shard is stale, download both again"
                )
            if mapped_to.get(name) != shard:
                expected = f"in {mapped_to[name]}" if name in mapped_to else "nowhere"
                raise ToolkitError(
                    f"{folder / shard} holds tensor {name!r:.120}, which {INDEX} expects {expected}; "
                    "shard or index is stale, download both again"
                )
            found[name] = (file, entry)
    for name, shard in mapped_to.items():
        if name not in found:
            raise ToolkitError(
                f"{folder / shard} lacks tensor {name!r:.120}, which {INDEX} expects there; the shard is stale, "
                "download it again"
            )
    return found


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = strict_json.read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ToolkitError(f'{index} has no "weight_map" from tensors to shards; download it again')
    for name, shard in weight_map.items():
        # A plain name keeps a stranger's index from pointing outside the folder.
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise ToolkitError(
                f"{index} maps tensor {name!r:.120} to {shard!r:.120}, which is not the name of a .safetensors file "
                "in the folder; download the index again"
            )
    return weight_map


def _refuse_left_over(folder: Path, names: set[str], why: str) -> None:
    if names:
        raise ToolkitError(
            f"{folder} holds {min(names)!r:.120} {why}; it belongs to another checkpoint or is an adapter, remove it"
        )


def _no_weights(folder: Path, present: list[str]) -> ToolkitError:
    if present:
        return ToolkitError(
            f"{folder} holds {present[0]!r:.120} but neither {SINGLE} nor {INDEX}; download the missing one"
        )
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if pickled:
        return ToolkitError(
            f"no safetensors found in {folder}, only {pickled[0]!r:.120}, which can run code when it is read; "
            "save the model again with safe_serialization=True"
        )
    return ToolkitError(f"no safetensors found in {folder}; give a folder with {SINGLE} or with shards and {INDEX}")
