# A stand-in for nixpkgs: the attributes that flake.nix may use, under their real names, and nothing else, so that a
# misspelt one fails. Its functions take the arguments that the real ones take and remember them in `saw`.
let
  derive =
    system: name: saw:
    derivation {
      inherit name system;
      builder = "/bin/sh";
      arguments = builtins.toJSON saw; # so that other arguments make another store path
    }
    // {
      inherit saw;
      meta.mainProgram = name;
    };

  lib = rec {
    inherit (builtins) head mapAttrs;
    genAttrs =
      names: f:
      builtins.listToAttrs (
        map (name: {
          inherit name;
          value = f name;
        }) names
      );
    optionalAttrs = condition: set: if condition then set else { };
    makeBinPath = packages: builtins.concatStringsSep ":" (map (package: "${package}/bin") packages);
    getExe = package: "${package}/bin/${package.meta.mainProgram}";
    getLib = package: package.lib;
    fileset = {
      unions = paths: map (path: if builtins.pathExists path then path else throw "${toString path} does not exist") paths;
      toSource =
        { root, fileset }:
        {
          source = map toString fileset;
          outPath = toString root;
        };
    };
  };

  sri = hash: builtins.match "sha256-[A-Za-z0-9+/]{43}=" hash != null;

  packages =
    system:
    let
      drv = derive system;
      named =
        names:
        builtins.listToAttrs (
          map (name: {
            inherit name;
            value = drv name { };
          }) names
        );

      python = drv "python3" { } // {
        sitePackages = "lib/python3.13/site-packages";
        withPackages = f: drv "python-environment" { packages = map (package: package.name) (f pythonPackages); };
        pkgs = pythonPackages;
      };

      pythonPackages =
        named [
          "hatchling"
          "hypothesis"
          "ipykernel"
          "jupyterlab"
          "matplotlib"
          "ml-dtypes"
          "mpmath"
          "mypy"
          "nbformat"
          "numpy"
          "papermill"
          "pytest"
          "pytest-xdist"
          "safetensors"
          "tokenizers"
        ]
        // {
          buildPythonPackage =
            {
              pname,
              version,
              src,
              dependencies,
              format ? null,
              pyproject ? null,
              build-system ? [ ],
              nativeBuildInputs ? [ ],
              buildInputs ? [ ],
              preFixup ? "",
              dontStrip ? false,
              pythonImportsCheck ? [ ],
            }:
            assert (format == "wheel") != (pyproject == true);
            drv pname {
              inherit
                version
                format
                preFixup
                dontStrip
                ;
              source = src.saw or src.source;
              build-system = map (package: package.name) build-system;
              dependencies = map (package: package.name) dependencies;
              nativeBuildInputs = map (package: package.name) nativeBuildInputs;
              buildInputs = map (package: package.name) buildInputs;
            };
          mkPythonEditablePackage =
            {
              pname,
              version,
              root,
              scripts,
            }:
            drv "${pname}-editable" { inherit version root scripts; };
        };

      rocmPackages =
        named [
          "amdsmi"
          "clang"
          "clr"
          "composable_kernel"
          "half"
          "hip-common"
          "hipblas"
          "hipblas-common"
          "hipblaslt"
          "hipcc"
          "hipcub"
          "hipfft"
          "hipfort"
          "hipify"
          "hiprand"
          "hipsolver"
          "hipsparse"
          "miopen"
          "rccl"
          "rocalution"
          "rocblas"
          "rocfft"
          "rocgdb"
          "rocm-bandwidth-test"
          "rocm-cmake"
          "rocm-comgr"
          "rocm-core"
          "rocm-device-libs"
          "rocm-runtime"
          "rocm-smi"
          "rocminfo"
          "rocprim"
          "rocprofiler"
          "rocprofiler-register"
          "rocprofiler-sdk"
          "rocrand"
          "rocsolver"
          "rocsparse"
          "rocthrust"
          "roctracer"
          "rocwmma"
          "rpp"
          "stdenv"
          "tensile"
        ]
        // {
          llvm.llvm = drv "llvm" { } // {
            lib = drv "llvm-lib" { };
          };
          hip = throw "rocmPackages.hip has been removed";
          rocm-thunk = throw "rocmPackages.rocm-thunk has been removed";
          rocmPath = throw "rocmPackages.rocmPath has been removed";
          rocm-merged-llvm = throw "rocmPackages.rocm-merged-llvm has been removed";
          clang-ocl = throw "rocmPackages.clang-ocl has been removed";
          triton = throw "rocmPackages.triton has been removed";
        };
    in
    named [
      "autoPatchelfHook"
      "clang-tools"
      "git"
      "gnumake"
      "nixfmt-tree"
      "patchelf"
      "ruff"
      "shellcheck"
    ]
    // {
      python313 = python;
      rocmPackages = if system == "x86_64-linux" then rocmPackages else throw "ROCm is for x86-64 only";
      stdenv = {
        hostPlatform.isx86_64 = system == "x86_64-linux";
        cc = drv "gcc-wrapper" { } // {
          cc = drv "gcc" { } // {
            lib = drv "gcc-lib" { };
          };
        };
      };
      fetchPypi =
        {
          pname,
          version,
          format,
          dist,
          python,
          abi,
          platform,
          hash,
        }:
        assert sri hash;
        drv "source" {
          inherit hash;
          file = "${pname}-${version}-${python}-${abi}-${platform}.whl";
        };
      symlinkJoin =
        {
          name,
          paths,
          postBuild ? "",
        }:
        drv name {
          inherit postBuild;
          paths = map (package: package.name) paths;
        };
      writeShellApplication =
        {
          name,
          text,
          runtimeInputs ? [ ],
          runtimeEnv ? { },
        }:
        drv name {
          inherit text runtimeEnv;
          path = lib.makeBinPath runtimeInputs;
          runtimeInputs = map (package: package.name) runtimeInputs;
        };
      runCommandCC =
        name:
        {
          nativeBuildInputs ? [ ],
          env ? { },
        }:
        script:
        drv name {
          inherit env script;
          inputs = map (package: package.name) nativeBuildInputs;
          python = map (package: package.saw.packages or [ ]) nativeBuildInputs;
        };
      mkShell =
        {
          name,
          packages ? [ ],
          env ? { },
          shellHook ? "",
        }:
        drv name {
          inherit env shellHook;
          packages = map (package: package.name) packages;
          python = (builtins.head packages).saw.packages;
        };
    };
in
{
  inherit lib;
  legacyPackages = lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] packages;
}
