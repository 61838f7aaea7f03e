"""flake.nix, evaluated against a stand-in for nixpkgs: what its shells, packages, apps and checks are made of."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
TEXT = (ROOT / "flake.nix").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RUNTIME = {re.match(r"[a-z0-9-]+", requirement)[0] for requirement in PROJECT["dependencies"]}
SYSTEM = "x86_64-linux"

pytestmark = pytest.mark.skipif(
    not shutil.which("nix-instantiate") and not os.environ.get("CI"), reason="nix is not installed (Debian: nix-bin)"
)


def nix(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["nix-instantiate", *map(str, arguments)], capture_output=True, text=True)


def evaluated(flake: Path) -> subprocess.CompletedProcess[str]:
    # The dummy store computes store paths and writes nothing, so no /nix is needed.
    return nix("--eval", "--strict", "--json", "--store", "dummy://", HERE / "evaluate.nix", "--arg", "flake", flake)


@cache
def outputs() -> Any:
    done = evaluated(ROOT / "flake.nix")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def everything(kind: str) -> dict[str, Any]:
    return outputs()[kind][SYSTEM]


def path_variables(value: Any) -> Iterator[tuple[str, str]]:
    """Every environment variable that holds paths, wherever it is set."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("env", "runtimeEnv"):
                yield from inner.items()
            elif name == "path":
                yield name, inner
            else:
                yield from path_variables(inner)


def faulty_path_variables(value: Any) -> list[str]:
    """Those with an empty entry, which means the current folder, at either end or in the middle."""
    return [name for name, paths in path_variables(value) if paths and "" in paths.split(":")]


# ------------------------------------------------------------------------------------------------------- the lock


def test_the_file_parses() -> None:
    assert nix("--parse", ROOT / "flake.nix").returncode == 0


def test_the_lock_is_complete_and_agrees_with_the_flake() -> None:
    lock = json.loads((ROOT / "flake.lock").read_text(encoding="utf-8"))
    assert lock["version"] == 7
    assert lock["nodes"]["root"]["inputs"] == {"nixpkgs": "nixpkgs"}
    node = lock["nodes"]["nixpkgs"]
    original = node["original"]
    assert f'inputs.nixpkgs.url = "github:{original["owner"]}/{original["repo"]}/{original["ref"]}";' in TEXT
    locked = node["locked"]
    assert {locked[key] for key in ("owner", "repo", "type")} == {"NixOS", "nixpkgs", "github"}
    assert re.fullmatch(r"[0-9a-f]{40}", locked["rev"])
    algorithm, _, digest = locked["narHash"].partition("-")
    assert algorithm == "sha256"
    assert len(base64.b64decode(digest, validate=True)) == 32
    assert isinstance(locked["lastModified"], int)


def test_nixpkgs_is_taken_as_its_cache_has_it() -> None:
    assert "legacyPackages" in TEXT
    assert not re.search(r"import nixpkgs|\b(?:rocm|cuda)Support\s*=|rocmPackages\.gfx|fetchurl|fetchTarball", TEXT)


# --------------------------------------------------------------------------------------------------- the packages


def test_the_wheel_is_the_pinned_one() -> None:
    cupy = everything("packages")["cupy-rocm"]
    locked = (ROOT / "requirements" / "rocm.lock").read_text(encoding="utf-8")
    entry = re.search(r"^cupy-rocm-7-0==(\S+) \\\n((?:    --hash=.*\n)+)", locked, re.MULTILINE)
    assert cupy["source"]["file"] == f"cupy_rocm_7_0-{entry[1]}-cp313-cp313-manylinux2014_x86_64.whl"
    digest = base64.b64decode(cupy["source"]["hash"].removeprefix("sha256-"), validate=True).hex()
    assert f"sha256:{digest}" in entry[2]


def test_the_wheel_finds_hiprtc_without_a_search_path() -> None:
    cupy = everything("packages")["cupy-rocm"]
    assert {"clr", "rocfft", "roctracer"} <= set(cupy["buildInputs"])
    assert {"autoPatchelfHook", "patchelf"} <= set(cupy["nativeBuildInputs"])
    assert "patchelf --add-needed libhiprtc.so.7 " in cupy["preFixup"]
    assert cupy["dontStrip"] is True
    assert "LD_LIBRARY_PATH" not in TEXT


def test_the_toolkit_is_packaged_with_its_data_and_dependencies() -> None:
    toolkit = everything("packages")["toolkit"]
    assert toolkit["version"] == PROJECT["version"]
    assert set(toolkit["dependencies"]) == RUNTIME
    assert toolkit["build-system"] == ["hatchling"]
    packaged = [Path(path) for path in toolkit["source"]]
    needed = [*(ROOT / "kernels").iterdir(), *(ROOT / "notebooks").iterdir(), *(ROOT / "specs").iterdir()]
    needed += [ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE", "toolkit/__init__.py")]
    for path in needed:
        assert any(path.is_relative_to(folder) for folder in packaged), path


def test_the_overlay_is_a_store_path() -> None:
    overlay = everything("packages")["hipblas-overlay"]
    assert overlay["paths"] == ["hipblas-common", "hipblas", "hipblaslt", "rocwmma"]
    assert overlay["store"].startswith("/nix/store/")
    assert "nix-support" in overlay["postBuild"]


@pytest.mark.parametrize("name", ["default", "toolkit-rocm"])
def test_the_command_brings_its_compiler(name: str) -> None:
    command = everything("packages")[name]
    assert "gcc-wrapper" in command["runtimeInputs"]
    assert "python-environment/bin/python -m toolkit" in command["text"]
    assert command["runtimeEnv"]["PYTHONSAFEPATH"] == "1"


def test_the_rocm_command_brings_hipcc_and_its_environment() -> None:
    command = everything("packages")["toolkit-rocm"]
    assert "clr" in command["runtimeInputs"]
    assert command["runtimeEnv"]["ROCM_HOME"].endswith("-clr")


# ------------------------------------------------------------------------------------------------------- the apps


@pytest.mark.parametrize(("app", "package"), [("default", "reproduce"), ("reproduce", "reproduce")])
def test_the_app_is_the_packaged_reproduction(app: str, package: str) -> None:
    program = everything("packages")[package]
    assert everything("apps")[app] == {"type": "app", "program": f"{program['store']}/bin/{program['name']}"}
    assert f"{everything('packages')['default']['store']}/bin/toolkit reproduce" in program["text"]


@pytest.mark.parametrize(
    ("given", "wanted"), [([], "near-tie"), (["near-tie", "--model", "a b"], "near-tie --model a b")]
)
def test_the_app_runs_in_the_current_folder(given: list[str], wanted: str, tmp_path: Path) -> None:
    text = everything("packages")["reproduce"]["text"]
    stand_in = tmp_path / "toolkit"
    stand_in.write_text('#!/bin/sh\necho "$PWD: $*"\n')
    stand_in.chmod(0o755)
    script = re.sub(r"exec \S+", f"exec {stand_in}", text)
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script, "app", *given], cwd=tmp_path, capture_output=True)
    assert done.stdout.decode() == f"{tmp_path}: reproduce {wanted}\n"


# ----------------------------------------------------------------------------------------------------- the shells


def test_the_rocm_shell_has_what_it_promises() -> None:
    shell = everything("devShells")["rocm-shell"]
    assert RUNTIME | {"cupy-rocm-7-0", "jupyterlab", "papermill", "pytest", "hypothesis"} <= set(shell["python"])
    assert {"clr", "rocminfo", "rocm-smi", "git", "gnumake"} <= set(shell["packages"])
    env = shell["env"]
    for name in ("ROCM_PATH", "ROCM_HOME", "HIP_PATH"):
        assert env[name].endswith("-clr")
    assert env["HIP_PLATFORM"] == "amd"
    assert env["HIP_DEVICE_LIB_PATH"].endswith("-rocm-device-libs/amdgcn/bitcode")
    assert env["HSA_PATH"].endswith("-rocm-runtime")
    assert env["CPATH"].endswith("-hipblas-overlay/include")
    assert env["LIBRARY_PATH"].endswith("-hipblas-overlay/lib")


def test_the_default_shell_has_no_rocm() -> None:
    shell = everything("devShells")["default"]
    assert set(shell["python"]) >= RUNTIME | {"jupyterlab", "pytest"}
    assert "cupy-rocm-7-0" not in shell["python"]
    assert "clr" not in shell["packages"]
    assert shell["env"] == {}


def test_shells_keep_nothing_in_the_home_folder() -> None:
    for shell in everything("devShells").values():
        assert not re.search(r"HOME\b|~/|XDG_|\.cache|ln -s|mkdir", shell["shellHook"])


def entered(hook: str, where: Path) -> subprocess.CompletedProcess[str]:
    script = f'{hook}\necho "root=$NEARTIE_ROOT"'
    return subprocess.run(["bash", "-u", "-c", script], cwd=where, capture_output=True, text=True)


def test_a_shell_imports_the_work_tree(tmp_path: Path) -> None:
    hook = everything("devShells")["default"]["shellHook"]
    assert "neartie-toolkit-editable" in everything("devShells")["default"]["python"]
    inside = entered(hook, ROOT / "toolkit" / "ops")
    assert inside.stderr == ""
    assert inside.stdout == f"root={ROOT}\n"
    assert "is not the toolkit's work tree" in entered(hook, tmp_path).stderr


def test_the_rocm_shell_says_what_keeps_a_gpu_from_being_used(tmp_path: Path) -> None:
    hook = everything("devShells")["rocm-shell"]["shellHook"].replace("/dev/", f"{tmp_path}/")
    missing = entered(hook, ROOT).stderr
    assert f"there is no {tmp_path}/kfd: load the amdgpu module" in missing
    (tmp_path / "kfd").touch()
    (tmp_path / "dri").mkdir()
    (tmp_path / "dri" / "renderD128").touch()
    assert entered(hook, ROOT).stderr == ""
    # Who may do everything (root) passes every -r and -w, so the question is put in another way.
    denied = hook.replace('[ ! -r "$device" ]', "true")
    group = (tmp_path / "kfd").group()
    assert f"{tmp_path}/kfd is for the group {group}: add yourself to it" in entered(denied, ROOT).stderr
    assert f"renderD128 is for the group {group}" in entered(denied, ROOT).stderr


# ----------------------------------------------------------------------------------------------------- the checks


def test_there_is_a_check_for_everything_that_needs_no_gpu() -> None:
    checks = everything("checks")
    assert set(checks) == {"tests", "near-tie", "cupy-import", "kernels", "emulator"}
    assert "pytest" in checks["tests"]["script"]
    assert "toolkit verify source/specs/near-tie/records/qwen3-tiny/record.json" in checks["near-tie"]["script"]
    assert "import cupy; assert cupy.cuda.runtime.is_hip" in checks["cupy-import"]["script"]
    assert any("cupy-rocm-7-0" in packages for packages in checks["cupy-import"]["python"])
    assert "toolkit kernels" in checks["kernels"]["script"]
    assert "--target" not in checks["kernels"]["script"]
    assert "-k gfx1200" in checks["emulator"]["script"]
    assert any("cupy-rocm-7-0" in packages for packages in checks["emulator"]["python"])
    for name in ("kernels", "emulator"):
        assert checks[name]["env"]["NEARTIE_HIPRTC"].endswith("-hiprtc/lib"), name


def test_a_machine_without_rocm_gets_the_rest() -> None:
    assert outputs()["systems"] == ["aarch64-linux", "x86_64-linux"]
    arm = {kind: set(outputs()[kind]["aarch64-linux"]) for kind in ("packages", "apps", "devShells", "checks")}
    assert arm == {
        "packages": {"default", "reproduce", "toolkit"},
        "apps": {"default", "reproduce"},
        "devShells": {"default"},
        "checks": {"tests", "near-tie"},
    }
    assert set(outputs()["formatter"].values()) == {"nixfmt-tree"}


# ----------------------------------------------------------------------------------------------- text for a shell


def texts() -> list[Any]:
    found = [(name, p["text"]) for name, p in outputs()["packages"][SYSTEM].items() if "text" in p]
    found += [(name, s["shellHook"]) for name, s in outputs()["devShells"][SYSTEM].items()]
    found += [(name, c["script"]) for name, c in outputs()["checks"][SYSTEM].items()]
    return found


def test_hooks_and_apps_pass_shellcheck(tmp_path: Path) -> None:
    tool = shutil.which("shellcheck", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if tool is None and not os.environ.get("CI"):
        pytest.skip("shellcheck is not installed (it is in the dev lock)")
    for name, text in texts():
        script = tmp_path / f"{name}.sh"
        # $out is what a derivation's builder is given; whoever calls writeShellApplication gets strict mode.
        script.write_text(f"#!/usr/bin/env bash\nset -euo pipefail\nout=${{1-}}\nexport out\n{text}")
        done = subprocess.run([str(tool), str(script)], capture_output=True, text=True)
        assert done.returncode == 0, f"{name}:\n{done.stdout}"


def test_no_path_variable_has_an_empty_entry() -> None:
    assert [name for name, _ in path_variables(outputs())]
    assert faulty_path_variables(outputs()) == []


# ----------------------------------------------------------------------------- what the tests above can and cannot see


@pytest.fixture
def mutated(tmp_path: Path) -> Any:
    """Evaluate a copy of the flake in which one text is replaced."""

    def run(old: str, new: str) -> subprocess.CompletedProcess[str]:
        assert old in TEXT, f"{old!r} is no longer in flake.nix"
        for path in ROOT.iterdir():
            if path.name != "flake.nix" and not (tmp_path / path.name).exists():
                (tmp_path / path.name).symlink_to(path)
        (tmp_path / "flake.nix").write_text(TEXT.replace(old, new))
        return evaluated(tmp_path / "flake.nix")

    return run


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hipblas-common\n", "hipblascommon\n", "'?hipblascommon'? missing|undefined variable 'hipblascommon'"),
        ("rocm.rocminfo", "rocm.rocmInfo", "attribute 'rocmInfo' missing"),
        ("tools = [ rocm.clr ]; #", "tools = [ rocm.hip ]; #", "has been removed"),
        ("sha256-xbX", "xbX", "assertion .* failed"),
        ("0hHQY=", "0hHQY", "assertion .* failed"),
        ("./kernels\n", "./kernel\n", "kernel does not exist"),
        ("dontStrip = true", "dontStripe = true", "unexpected argument 'dontStripe'"),
    ],
)
def test_a_mistake_fails_the_evaluation(old: str, new: str, message: str, mutated: Any) -> None:
    done = mutated(old, new)
    assert done.returncode != 0
    assert re.search(message, done.stderr), done.stderr


def test_a_trailing_colon_is_found(mutated: Any) -> None:
    done = mutated("${hipblas-overlay}/include", "${hipblas-overlay}/include:")
    assert done.returncode == 0
    assert set(faulty_path_variables(json.loads(done.stdout))) == {"CPATH"}


def test_a_kernel_folder_that_is_left_out_is_found(mutated: Any) -> None:
    done = mutated("                ./kernels\n", "")
    assert done.returncode == 0
    packaged = json.loads(done.stdout)["packages"][SYSTEM]["toolkit"]["source"]
    assert not any(path.endswith("/kernels") for path in packaged)
