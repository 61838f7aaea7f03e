{
  description = "Is a different greedy token a kernel defect, or ordinary rounding at a near-tie?";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";

  outputs =
    { self, nixpkgs }:
    let
      inherit (nixpkgs) lib;
      project = (builtins.fromTOML (builtins.readFile ./pyproject.toml)).project;

      # The name of a dependency without its version: nixpkgs decides which version there is.
      dependencyName = requirement: lib.head (builtins.match "([a-z0-9-]+).*" requirement);

      # legacyPackages as they are: any config.rocmSupport would miss the public cache and rebuild ROCm.
      perSystem = lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (
        system:
        let
          pkgs = nixpkgs.legacyPackages.${system};
          rocm = pkgs.rocmPackages;
          hasRocm = pkgs.stdenv.hostPlatform.isx86_64; # as CuPy's wheel, and as ROCm in nixpkgs
          python = pkgs.python313; # of the wheel's ABI

          runtime = map (requirement: python.pkgs.${dependencyName requirement}) project.dependencies;
          testing = with python.pkgs; [
            hypothesis
            mpmath
            pytest
            pytest-xdist
          ];

          # ------------------------------------------------------------------------------------------------ packages

          # CuPy's own wheel: the cupy of nixpkgs is for CUDA only.
          cupy-rocm = python.pkgs.buildPythonPackage rec {
            pname = "cupy-rocm-7-0";
            version = "14.2.0";
            format = "wheel";
            src = pkgs.fetchPypi {
              pname = "cupy_rocm_7_0";
              inherit version format;
              dist = "cp313";
              python = "cp313";
              abi = "cp313";
              platform = "manylinux2014_x86_64";
              hash = "sha256-xbX70lIoRyLRd4Nu2g7+ReS+WrPUtD5Ft955Gc0hHQY=";
            };
            dependencies = [ python.pkgs.numpy ];
            nativeBuildInputs = [
              pkgs.autoPatchelfHook
              pkgs.patchelf
            ];
            buildInputs = with rocm; [
              clr
              hipblas
              hipfft
              hiprand
              hipsparse
              rccl
              rocblas
              rocfft
              rocsolver
              roctracer
              pkgs.stdenv.cc.cc.lib
            ];
            # hipRTC is opened by name at the first compilation, when no search path of the module counts. As a needed
            # library of a module that is imported before, it is loaded already.
            preFixup = ''
              patchelf --add-needed libhiprtc.so.7 "$out"/${python.sitePackages}/cupy_backends/cuda/api/runtime.*.so
            '';
            dontStrip = true; # the device code in .hip_fatbin must keep its alignment
          };

          toolkit = python.pkgs.buildPythonPackage {
            pname = project.name;
            inherit (project) version;
            pyproject = true;
            src = lib.fileset.toSource {
              root = ./.;
              fileset = lib.fileset.unions [
                ./LICENSE
                ./README.md
                ./kernels
                ./notebooks
                ./pyproject.toml
                ./specs
                ./toolkit
              ];
            };
            build-system = [ python.pkgs.hatchling ];
            dependencies = runtime;
            pythonImportsCheck = [ "toolkit" ];
          };

          # hipBLAS's headers include hipblas-common's, so tools want the family under one root.
          hipblas-overlay = pkgs.symlinkJoin {
            name = "hipblas-overlay";
            paths = with rocm; [
              hipblas-common
              hipblas
              hipblaslt
              rocwmma
            ];
            postBuild = ''rm -rf "$out/nix-support"'';
          };

          # hipRTC, its code generator and the LLVM that disassembles what it makes, in one folder.
          hiprtc = pkgs.symlinkJoin {
            name = "hiprtc";
            paths = [
              rocm.clr
              rocm.rocm-comgr
              (lib.getLib rocm.llvm.llvm)
            ];
            postBuild = ''rm -rf "$out/nix-support"'';
          };

          rocmEnvironment = {
            ROCM_HOME = "${rocm.clr}"; # the one that CuPy reads
            ROCM_PATH = "${rocm.clr}";
            HIP_PATH = "${rocm.clr}";
            HIP_PLATFORM = "amd";
            HIP_DEVICE_LIB_PATH = "${rocm.rocm-device-libs}/amdgcn/bitcode";
            HSA_PATH = "${rocm.rocm-runtime}";
            NEARTIE_HIPRTC = "${hiprtc}/lib";
          };

          # An environment, not the wrapped script of a package: the notebook's kernel is a second process that must find
          # the same packages. The compiler builds device cpu's kernels, as there is none on a bare machine's PATH.
          command =
            {
              name,
              extraPackages ? [ ],
              tools ? [ ],
              environment ? { },
            }:
            pkgs.writeShellApplication {
              inherit name;
              runtimeInputs = [ pkgs.stdenv.cc ] ++ tools;
              runtimeEnv = environment // {
                PYTHONSAFEPATH = "1"; # not the toolkit of a checkout that happens to be the current folder
              };
              text = ''
                exec ${python.withPackages (_: [ toolkit ] ++ extraPackages)}/bin/python -m toolkit "$@"
              '';
            };

          toolkitCommand = command { name = "toolkit"; };
          toolkitRocmCommand = command {
            name = "toolkit";
            extraPackages = [ cupy-rocm ];
            tools = [ rocm.clr ]; # CuPy runs hipcc, even for a kernel from its cache
            environment = rocmEnvironment;
          };

          reproduce =
            name: program:
            pkgs.writeShellApplication {
              inherit name;
              text = ''
                if [ $# -eq 0 ]; then
                  set -- near-tie
                fi
                exec ${lib.getExe program} reproduce "$@"
              '';
            };

          app = description: program: {
            type = "app";
            program = lib.getExe program;
            meta = { inherit description; };
          };

          # -------------------------------------------------------------------------------------------------- shells

          # The work tree as a package: what is imported is what lies in the folder that the shell was entered in.
          editable = python.pkgs.mkPythonEditablePackage {
            pname = project.name;
            inherit (project) version scripts;
            root = "$NEARTIE_ROOT";
          };

          shell =
            {
              name,
              extraPackages ? [ ],
              tools ? [ ],
              environment ? { },
              greeting ? "",
            }:
            pkgs.mkShell {
              inherit name;
              packages = [
                (python.withPackages (
                  ps:
                  runtime
                  ++ testing
                  ++ extraPackages
                  ++ [
                    editable
                    ps.jupyterlab
                    ps.mypy
                  ]
                ))
                pkgs.clang-tools
                pkgs.git
                pkgs.gnumake
                pkgs.ruff
                pkgs.shellcheck
              ]
              ++ tools;
              env = environment;
              shellHook = ''
                NEARTIE_ROOT=$(git rev-parse --show-toplevel 2>/dev/null || pwd)
                export NEARTIE_ROOT
                if [ ! -e "$NEARTIE_ROOT/toolkit/__init__.py" ]; then
                  echo "${name}: $NEARTIE_ROOT is not the toolkit's work tree; enter the shell there to import it" >&2
                fi
              ''
              + greeting;
            };

          # An AMD GPU is two device files that the user may read and write.
          deviceCheck = ''
            if [ ! -e /dev/kfd ]; then
              echo "rocm-shell: there is no /dev/kfd: load the amdgpu module to use a GPU (device cpu needs none)" >&2
            fi
            for device in /dev/kfd /dev/dri/renderD*; do
              if [ -e "$device" ] && { [ ! -r "$device" ] || [ ! -w "$device" ]; }; then
                echo "rocm-shell: $device is for the group $(stat -c %G "$device"): add yourself to it and log in again" >&2
              fi
            done
          '';

          # -------------------------------------------------------------------------------------------------- checks

          check =
            {
              name,
              extraPackages ? [ ],
              tools ? [ ],
              environment ? { },
              script,
            }:
            pkgs.runCommandCC "neartie-${name}"
              {
                nativeBuildInputs = [
                  (python.withPackages (_: [ toolkit ] ++ testing ++ extraPackages))
                  pkgs.git
                  pkgs.gnumake
                ]
                ++ tools;
                env = environment;
              }
              ''
                export HOME="$TMPDIR" OMP_NUM_THREADS=1
                cp -r ${self} source
                chmod -R u+w source
                cd source
                ${script}
                touch "$out"
              '';

          # Left out are the tests of packaging and of this file, which need pip, an index or nix.
          runPytest = arguments: ''
            python -m pytest -q -p no:cacheprovider -n "$NIX_BUILD_CORES" ${arguments} \
              --ignore tests/packaging --ignore tests/nix --ignore tests/unit/test_packaging.py
          '';
        in
        {
          formatter = pkgs.nixfmt-tree;

          packages = {
            default = toolkitCommand;
            reproduce = reproduce "reproduce" toolkitCommand;
            inherit toolkit;
          }
          // lib.optionalAttrs hasRocm {
            inherit cupy-rocm hipblas-overlay;
            toolkit-rocm = toolkitRocmCommand;
            reproduce-rocm = reproduce "reproduce-rocm" toolkitRocmCommand;
          };

          apps = rec {
            default = reproduce;
            reproduce = app "Run an investigation and leave its record" self.packages.${system}.reproduce;
          }
          // lib.optionalAttrs hasRocm {
            reproduce-rocm = app "The same with CuPy for AMD GPUs" self.packages.${system}.reproduce-rocm;
          };

          devShells = {
            default = shell { name = "neartie"; };
          }
          // lib.optionalAttrs hasRocm {
            rocm-shell = shell {
              name = "rocm-shell";
              extraPackages = [ cupy-rocm ];
              tools = [
                rocm.clr
                rocm.rocm-smi
                rocm.rocminfo
              ];
              environment = rocmEnvironment // {
                CPATH = "${hipblas-overlay}/include";
                LIBRARY_PATH = "${hipblas-overlay}/lib";
                CMAKE_PREFIX_PATH = "${hipblas-overlay}";
              };
              greeting = deviceCheck;
            };
          };

          checks = {
            tests = check {
              name = "tests";
              script = runPytest "-m 'not slow and not rocm and not gpu'";
            };
            near-tie = check {
              name = "near-tie";
              tools = [ toolkitCommand ];
              # The packaged command, away from the checkout, against the record that was committed.
              script = "cd .. && toolkit verify source/specs/near-tie/records/qwen3-tiny/record.json";
            };
          }
          // lib.optionalAttrs hasRocm {
            cupy-import = check {
              name = "cupy-import";
              extraPackages = [ cupy-rocm ];
              tools = [ rocm.clr ];
              environment = rocmEnvironment;
              script = ''python -c "import cupy; assert cupy.cuda.runtime.is_hip"'';
            };
            kernels = check {
              name = "kernels";
              environment = rocmEnvironment;
              script = ''python -m toolkit kernels --jobs "$NIX_BUILD_CORES"'';
            };
            emulator = check {
              name = "emulator";
              extraPackages = [ cupy-rocm ];
              environment = rocmEnvironment;
              script = ''
                NEARTIE_ROCM_PYTHON=$(command -v python)
                export NEARTIE_ROCM_PYTHON
              ''
              + runPytest "-m 'rocm and not slow' -k gfx1200";
            };
          };
        }
      );

      output = name: lib.mapAttrs (_: outputs: outputs.${name}) perSystem;
    in
    {
      formatter = output "formatter";
      packages = output "packages";
      apps = output "apps";
      devShells = output "devShells";
      checks = output "checks";
    };
}
