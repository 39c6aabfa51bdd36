# Shell functions that ./test, ./demo and scripts/stage share: installing packages, build directories, virtual
# environments. To be sourced by bash; expects $root, the top of the source tree.

export DEBIAN_FRONTEND=noninteractive
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
# Nothing of the caller's Python may leak into the virtual environments.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV
# A second clone shares the first one's cache: paths below the tree are hashed relative to it.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

# The scripts never use whatever "python3" is first on the PATH.
system_python=/usr/bin/python3

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# Parallel jobs: every core, but 2 GiB of memory for each (a sanitizer build of one file can take that much).
# STAGEWIRE_JOBS overrides it.
jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 1048576 / 2)}' /proc/meminfo)
  ((memory < 1)) && memory=1
  say "${STAGEWIRE_JOBS:-$((cores < memory ? cores : memory))}"
}

# packages GROUP...: the packages of these groups in scripts/packages.txt, one a line.
packages() {
  local group
  for group in "$@"; do
    awk -v group="$group" '$1 == group {print $2}' "$root/scripts/packages.txt"
  done
}

# install_packages GROUP...: installs those that are missing. Quick, and without the network, when none is.
install_packages() {
  local -a wanted missing=()
  local package
  mapfile -t wanted < <(packages "$@")
  for package in "${wanted[@]}"; do
    installed "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
    die "these packages are missing; install them and start again:
  apt-get install -y ${missing[*]}"
  fi
  say "installing ${#missing[@]} missing packages: ${missing[*]}"
  mkdir -p "$root/build/logs"
  local log=$root/build/logs/apt.log
  if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null
  then
    tail -n 20 "$log" >&2
    die "apt-get failed (the whole output is in build/logs/apt.log). By hand:
  apt-get update && apt-get install -y ${missing[*]}"
  fi
}

# there PATH: true when the tree has this file, or files below this folder.
there() { [[ -f $root/$1 ]] || { [[ -d $root/$1 ]] && [[ -n $(find "$root/$1" -type f -print -quit) ]]; }; }
on_if_there() { there "$1" && say ON || say OFF; }

# configure DIR [CMAKE ARGUMENT...]: configures build/DIR with what every configuration has in common.
configure() {
  local directory=$root/build/$1
  shift
  # A cache made in another place (a copied tree) can't be reused.
  if [[ -f $directory/CMakeCache.txt ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$directory/CMakeCache.txt"
  then
    rm -rf "$directory"
  fi
  cmake -S "$root" -B "$directory" -G Ninja -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
    -DPython_EXECUTABLE="$system_python" "$@"
}

# compile DIR [TARGET...]: builds build/DIR.
compile() {
  local directory=$root/build/$1
  shift
  cmake --build "$directory" -j "$(jobs)" ${1:+--target "$@"}
}

installed() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# configure_release: the build that users get, in build/release. The micro-benchmarks are for ./test, which installs
# their library.
configure_release() {
  local bench=OFF
  installed libbenchmark-dev && bench=ON
  configure release -DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=Release -DSTAGEWIRE_WERROR=ON \
    -DSTAGEWIRE_BENCH="$bench" "$@"
}

# make_venv DIR [VENV OPTION...]: a virtual environment of Debian's Python in build/DIR, made anew when the one
# there doesn't run or was made in another place.
make_venv() {
  local directory=$root/build/$1
  shift
  if [[ $("$directory/bin/python" -c 'import sys; print(sys.prefix)' 2>/dev/null) != "$directory" ]] ||
    ! "$directory/bin/python" -m pip --version >/dev/null 2>&1; then
    rm -rf "$directory"
    "$system_python" -m venv "$@" "$directory"
  fi
}

# pip_in DIR ARGUMENT...: runs the pip of build/DIR.
pip_in() {
  local directory=$root/build/$1
  shift
  "$directory/bin/python" -m pip --quiet "$@" </dev/null
}

# build_venv: build/venv-build, with the build requirements that pyproject.toml names and nothing else.
build_venv() {
  local -a requirements
  make_venv venv-build
  mapfile -t requirements < <("$system_python" -c '
import pathlib, sys, tomllib
print(*tomllib.loads(pathlib.Path(sys.argv[1]).read_text())["build-system"]["requires"], sep="\n")' "$root/pyproject.toml")
  pip_in venv-build install "${requirements[@]}"
}

# build_wheel DIR: builds the wheel of this tree into build/DIR (emptied first). What pip would do in a throw-away
# environment is done in a lasting one; with the flags and the directory depth of build/release, too, ccache has
# nearly every file already.
build_wheel() {
  build_venv
  rm -rf "${root:?}/build/$1" "$root/build/$1-objects"
  CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_BUILD_PARALLEL_LEVEL=$(jobs) CXX=g++ \
    "$root/build/venv-build/bin/python" -m pip wheel --no-deps --no-build-isolation --verbose \
    --config-settings=cmake.define.STAGEWIRE_WERROR=ON --config-settings=build-dir="$root/build/$1-objects" \
    --wheel-dir "$root/build/$1" "$root" </dev/null
}

# install_wheel VENV DIR: puts the wheel of build/DIR into build/VENV, replacing the one there.
install_wheel() {
  pip_in "$1" install --no-deps --force-reinstall "$root/build/$2"/*.whl
}
