#!/bin/sh
# The kernels through an older hipRTC (6.4, LLVM 21: Debian forky's packages), whose builtin header differs. Nothing is
# installed: the packages are unpacked into a folder, and Python runs under the C library that they were built for.
#
#   specs/targets/second-generation.sh FOLDER [ARGUMENTS OF toolkit kernels ...]
#
# Needs apt, dpkg-deb and a Debian mirror among apt's sources. Forky is a moving target: versions may differ.
set -eu
folder=${1:?where to unpack the packages}
shift
python=${PYTHON:-.venv/bin/python}
libraries=$folder/root/usr/lib/x86_64-linux-gnu

if [ ! -e "$libraries/libhiprtc.so.6" ]; then
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial" "$folder/root"
    : >"$folder/status"
    mirror=$(apt-get indextargets --format '$(SITE)' | head -n 1)
    echo "deb $mirror forky main" >"$folder/sources.list"
    cat >"$folder/apt.conf" <<EOF
Dir::State::Lists "$folder/lists";
Dir::State::status "$folder/status";
Dir::Cache "$folder/cache";
Dir::Etc::sourcelist "$folder/sources.list";
Dir::Etc::sourceparts "/dev/null";
APT::Architectures "amd64";
Acquire::Languages "none";
Debug::NoLocking "1";
EOF
    APT_CONFIG=$folder/apt.conf apt-get -q update
    APT_CONFIG=$folder/apt.conf apt-get -q install -y --download-only --no-install-recommends \
        libhiprtc6 libhiprtc-builtins6 libamd-comgr3 rocm-device-libs-21
    for package in "$folder"/cache/archives/*.deb; do dpkg-deb -x "$package" "$folder/root"; done
fi

# One job: further processes would start outside of that C library.
NEARTIE_HIPRTC=$libraries exec "$libraries/ld-linux-x86-64.so.2" \
    --library-path "$libraries:$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))'):/usr/lib/x86_64-linux-gnu" \
    "$(readlink -f "$python")" -c '
import site, sys
site.addsitedir(sys.argv[1])
from toolkit.cli import main
sys.exit(main(["kernels", "--jobs", "1", *sys.argv[2:]]))
' "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" "$@"
