"""Rules of the tree that no compiler checks: what may import what, what may differ by vendor, what is never committed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolkit
from toolkit.devices import kernels, ordered
from toolkit.ops import REGISTRY
from toolkit.ops.cases import Draw

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "toolkit"

# What each part may import of the others; arrows point one way. BASE is for all but study and emulator: what they do
# depends on their arguments and on nothing else.
BASE = {"errors", "dtypes", "files", "progress"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "dtypes": {"errors"},
    "files": {"errors"},
    "progress": set(),
    "study": {"errors", "dtypes"},
    "emulator": set(),
    "devices": BASE | {"emulator"},
    "checkpoints": BASE,
    "bundled": BASE,
    "ops": BASE | {"devices"},
    "models": BASE | {"ops", "devices", "checkpoints"},
    "engine": BASE | {"models", "ops", "devices", "checkpoints"},
    "faults": BASE | {"engine", "models", "ops", "devices", "checkpoints"},
    "records": BASE | {"study"},
    "judging": BASE | {"checkpoints", "study"},
    "reporting": BASE | {"records", "study"},
    "oracles": BASE | {"checkpoints", "study"},
    "gate": BASE | {"oracles", "checkpoints", "study"},
}
EVERYTHING = {"__init__", "__main__", "api", "cli", "commands", "investigations"}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def texts() -> Iterator[tuple[str, str]]:
    for path in tracked():
        try:
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def found(pattern: re.Pattern[str], text: str) -> list[str]:
    return [f"line {text.count(chr(10), 0, m.start()) + 1}: {m.group()}" for m in pattern.finditer(text)]


def without_comments(source: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), source, flags=re.DOTALL)


# ------------------------------------------------------------------------------------------------ what is committed


def test_no_tracked_file_names_a_place_on_somebodys_machine() -> None:
    pattern = re.compile(r"(?<![\w.~/-])/(?:root|work|home/\w+|Users/\w+)/\S*|\.\./shared\b")
    places = {name: hits for name, text in texts() if (hits := found(pattern, text))}
    assert places == {}


def test_no_tracked_file_names_the_host_of_a_package_registry() -> None:
    # Where packages come from is the machine's business: a mirror serves as well, the hashes say whether it is the same.
    pattern = re.compile(r"py" r"pi\.org|python" r"hosted\.org|npm" r"js\.org|deb" r"ian\.org|ana" r"conda\.org")
    hosts = {name: hits for name, text in texts() if (hits := found(pattern, text))}
    assert hosts == {}


def test_notebooks_are_committed_without_outputs() -> None:
    import nbformat

    sources = [path for path in tracked() if path.suffix == ".ipynb" and path.is_relative_to(ROOT / "notebooks")]
    assert sources
    for path in sources:
        for cell in nbformat.read(path, as_version=4).cells:
            assert not cell.get("outputs"), path.name
            assert cell.get("execution_count") is None, path.name


# ------------------------------------------------------------------------------------------------------- imports


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports at run time, relative ones made absolute."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in for_types_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join([*package, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names) if module == "toolkit" else (module,)


def parts() -> dict[str, list[Path]]:
    grouped: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        grouped.setdefault(path.relative_to(PACKAGE).parts[0].removesuffix(".py"), []).append(path)
    return grouped


@pytest.mark.parametrize("part", sorted(parts()))
def test_arrows_between_the_parts_point_one_way(part: str) -> None:
    assert part in MAY_IMPORT or part in EVERYTHING, f"toolkit/{part} has no place in the table above"
    if part in EVERYTHING:
        return
    used = {
        (path.name, module.split(".")[1])
        for path in parts()[part]
        for module in imports(path)
        if module.startswith("toolkit.") and module.split(".")[1] != part
    }
    assert {(file, other) for file, other in used if other not in MAY_IMPORT[part]} == set()


@pytest.mark.parametrize("part", ["study", "emulator"])
def test_the_parts_that_stand_alone_need_numpy_and_its_dtypes_only(part: str) -> None:
    roots = {module.split(".")[0] for path in parts()[part] for module in imports(path)}
    assert roots - sys.stdlib_module_names - {"toolkit"} <= {"numpy", "ml_dtypes"}


def test_only_the_parts_on_top_use_investigations() -> None:
    users = {part for part, files in parts().items() for path in files for m in imports(path) if "investigations" in m}
    assert users <= EVERYTHING


def test_the_toolkit_does_not_import_what_it_is_compared_with() -> None:
    # torch and transformers made the bundled models and the oracles; nothing that runs may depend on them.
    others = {"torch", "transformers", "tensorflow", "jax"}
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if others & {module.split(".")[0] for module in imports(path)}
    }
    # The capture scripts run in the environments of what they ask.
    assert {user for user in users if not user.startswith("oracles/capture_scripts/")} <= {"bundled/train.py"}


# ------------------------------------------------------------------------------------------------------- kernels

VENDOR = re.compile(
    r"\b(?:ON_(?:HIP|CUDA|HOST)|__(?:HIP|CUDA|AMDGCN|GFX|NVCC|gfx)\w*|(?:thread|block)(?:Idx|Dim)|gridDim|warpSize"
    r"|__(?:shfl|ballot|any|all|syncwarp|syncthreads|popc|ldg)\w*|__(?:shared|global|device|host|constant)__"
    r"|__launch_bounds__|__builtin_\w+|__attribute__|asm)\b"
)


@pytest.mark.parametrize("name", sorted(p.name for p in kernels.folder().glob("*.[h]*") if p.name != "portable.h"))
def test_vendor_differences_are_in_the_portable_header_only(name: str) -> None:
    assert found(VENDOR, without_comments((kernels.folder() / name).read_text(encoding="utf-8"))) == []


def test_the_portable_header_is_where_they_are() -> None:
    # Guards the test above: a pattern that matches nothing would let everything pass.
    header = without_comments((kernels.folder() / "portable.h").read_text(encoding="utf-8"))
    matches = {m.group() for m in VENDOR.finditer(header)}
    assert {"ON_HIP", "ON_CUDA", "ON_HOST", "threadIdx", "__shared__", "__launch_bounds__", "__syncthreads"} <= matches


def test_every_kernel_file_belongs_to_an_op_or_to_the_ordered_sums() -> None:
    assert {op.kernel for op in REGISTRY.values()} | {ordered.FILE} == set(kernels.names())


# ------------------------------------------------------------------------------------------------------------ ops


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_op_is_declared_in_full(name: str) -> None:
    op = REGISTRY[name]
    assert op.providers, "no kernel provider"
    assert op.tolerance.because.strip(), "no reason for its tolerance"
    assert op.__doc__, "no docstring"
    for dtype in op.dtypes:
        assert next(op.draw_cases(Draw(dtype)), None) is not None, f"no case for {dtype}"


# ----------------------------------------------------------------------------------------------------- docstrings


def undocumented(path: Path) -> Iterator[str]:
    where = path.relative_to(PACKAGE)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path.name != "__main__.py" and not ast.get_docstring(tree):
        yield f"{where}: the module"
    # A command's register() and run() are what toolkit/commands/__init__.py says they are; the scripts that trained the
    # bundled models are no interface.
    known = {"register", "run"} if where.parts[0] == "commands" else set()
    if where.parent.name == "bundled" and path.name != "__init__.py":
        return
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_") or node.name in known:
            continue
        if not ast.get_docstring(node):
            yield f"{where}: {node.name}"


def test_every_public_name_has_a_docstring() -> None:
    missing = [name for path in sorted(PACKAGE.rglob("*.py")) for name in undocumented(path)]
    assert missing == []


@pytest.mark.parametrize("name", toolkit.__all__)
def test_every_name_of_the_public_interface_exists_and_is_documented(name: str) -> None:
    assert getattr(toolkit, name).__doc__


# ------------------------------------------------------------------------------------------------------ documents


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/emulated-rocm-ci.md"])
def test_documents_link_to_files_that_exist(name: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / name).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / name).parent.joinpath(link).exists()] == []


def test_the_results_in_the_readme_are_those_of_the_records() -> None:
    rows = re.findall(
        r"^\| (\S+) \| (\S+) \| (\d+) \| (\d+) \| ([\d.]+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    said = {model: (verdict, int(steps), int(parted), float(ratio)) for model, verdict, steps, parted, ratio in rows}
    found = {}
    for path in sorted((ROOT / "specs" / "near-tie" / "records").glob("*/record.json")):
        verdict = json.loads(path.read_text(encoding="utf-8"))["digested"]["verdict"]
        numbers = verdict["numbers"]
        ratio = round(numbers["largest_gap_ratio"], 1)
        found[path.parent.name] = (verdict["verdict"], numbers["steps"], numbers["divergences"], ratio)
    assert said == found
