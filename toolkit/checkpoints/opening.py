"""Opening a model by what a user gives: the name of one that a package holds, a GGUF file, or a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

from toolkit.checkpoints import named
from toolkit.checkpoints.checkpoint import Checkpoint
from toolkit.checkpoints.folder import load_folder
from toolkit.checkpoints.gguf import load_gguf
from toolkit.errors import ToolkitError


def load(path: str | Path, *, dtype: str | None = None, weights_dtype: str | None = None) -> Checkpoint:
    """The checkpoint at ``path``: a Hugging Face folder, a GGUF file, or one of ``named.MODELS`` if there is no such path.

    ``dtype`` is the one that will be computed in, so that an impossible one is refused before anything is read.
    ``weights_dtype`` is what a GGUF file's dequantised weights are rounded to, bfloat16 by default.
    Raises ToolkitError, one sentence that names file and tensor or key, for anything that is not as it should be.
    """
    place = Path(path)
    if not place.exists() and str(path) in named.MODELS:
        place = named.fetch(str(path))
    if place.is_file():
        return load_gguf(place, dtype=dtype, weights_dtype=weights_dtype or "bfloat16")
    if not place.is_dir():
        raise ToolkitError(
            f"{place} is neither a folder nor a file nor one of the known models ({', '.join(named.MODELS)}); "
            "check the path"
        )
    if weights_dtype is not None:
        raise ToolkitError(
            f"{place}: the weights of a folder are used as stored, so --weights-dtype does not apply to it"
        )
    return load_folder(place, dtype=dtype)
