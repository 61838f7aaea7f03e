"""Every op of the toolkit. Each is declared once, in the module of its family; see CONTRIBUTING for an op's life."""

from toolkit.ops.declare import REGISTRY
from toolkit.ops.norm import add_rms_norm, rms_norm

__all__ = ["REGISTRY", "add_rms_norm", "rms_norm"]
