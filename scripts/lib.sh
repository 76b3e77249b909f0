# What run.sh and test.sh share: install, configure, build, and how they speak. Sourced by bash, from anywhere.
# Everything is said on stderr, one line per step; what a step prints goes to a log under build/log.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
LOG_FOLDER="$ROOT/build/log"
cd "$ROOT"

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# The one clear line at the end of a failure.
fail() {
  say "FAILED: $*"
  exit 1
}

# What took how long, for print_stages.
stages=()
note_stage() { stages+=("$(printf '%6d s  %s' "$2" "$1")"); }

# print_stages: a line per stage in the order of the run, for those who want to know where the time goes.
print_stages() {
  ((${#stages[@]} > 0)) || return 0
  say "time by stage, $SECONDS s in all:"
  printf '%s\n' "${stages[@]}" >&2
}

# step WHAT COMMAND...: runs it with its output in a log; says how far it is every 20 seconds, how long it took, and
# on failure shows the end of the log.
step() {
  local what="$1" log start=$SECONDS told=$SECONDS status=0 pid
  shift
  log="$LOG_FOLDER/${what//[^a-zA-Z0-9]/-}.log"
  mkdir -p "$LOG_FOLDER"
  say "$what ..."
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  trap 'kill "$pid" 2>/dev/null; fail "interrupted: $what"' INT TERM
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if ((SECONDS - told >= 20)); then
      told=$SECONDS
      say "$what ... $((SECONDS - start)) s: $(tail -n 1 "$log" | tr '\r' '\n' | tail -n 1 | cut -c 1-90)"
    fi
  done
  wait "$pid" || status=$?
  trap - INT TERM
  note_stage "$what" $((SECONDS - start))
  if ((status != 0)); then
    tail -n 40 "$log" >&2
    fail "$what (status $status, all of it in ${log#"$ROOT"/})"
  fi
  say "$what: done in $((SECONDS - start)) s"
}

# Which Debian this is: 12, 13, or nothing where scripts/packages.txt does not know it.
debian_release() {
  (. /etc/os-release && [[ "$ID" == debian && "${VERSION_ID:-}" =~ ^1[23]$ ]] && echo "$VERSION_ID") 2>/dev/null || true
}

# packages PURPOSE...: the names listed for these purposes, of this Debian, or of any where this is none.
packages() {
  local purpose release
  release="$(debian_release)"
  for purpose in "$@"; do
    awk -v purpose="$purpose" -v release="$release" \
      '$1 == purpose && (NF == 2 || $3 == release || (release == "" && $3 == 13)) { print $2 }' \
      "$ROOT/scripts/packages.txt"
  done
}

# Those that are not installed, but for npm where it came with another Node: Debian's would take that one's place.
missing_packages() {
  local name
  for name in $(packages "$@"); do
    dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null | grep -qx installed ||
      { [[ "$name" == npm ]] && command -v npm >/dev/null; } || echo "$name"
  done
}

as_root() {
  if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

# On other machines the packages have other names, and the user installs them.
require_debian() {
  [[ -z "$(debian_release)" ]] || return 0
  fail "this is neither Debian 12 nor 13. Install what Debian 13 calls $(packages "$@" | paste -sd " ")" \
    "(g++ 12, CMake 3.25 and Boost 1.81, or newer), then say: $0 --no-install. A Debian in a folder is" \
    "scripts/in-debian.sh 13 $0"
}

# install_packages PURPOSE...: through apt, and only if something is missing.
install_packages() {
  require_debian "$@"
  local missing
  missing="$(missing_packages "$@" | paste -sd " ")"
  [[ -n "$missing" ]] || return 0
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "not root, and there is no sudo; as root, run: apt-get install $missing"
    say "needs $missing (sudo may ask for your password)"
    sudo -v || fail "sudo was refused; as root, run: apt-get install $missing"
  fi
  step "update the package lists" as_root apt-get -o DPkg::Lock::Timeout=300 update
  # A package that brings a service must not start it: 101 is 'not allowed' (invoke-rc.d(8)).
  local policy=/usr/sbin/policy-rc.d placed=
  if [[ ! -e "$policy" ]]; then
    placed=1
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
  fi
  # shellcheck disable=SC2086
  step "install $(wc -w <<<"$missing") packages" as_root env DEBIAN_FRONTEND=noninteractive apt-get \
    -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $missing
  if [[ -n "$placed" ]]; then as_root rm -f "$policy"; fi
  return 0
}

# As many compilers at once as there are cores, and at least 1.5 GB of memory for each.
build_jobs() {
  local cores memory_kb jobs
  cores="$(nproc)"
  memory_kb="$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)"
  jobs=$((memory_kb / 1500000))
  ((jobs < cores)) || jobs=$cores
  ((jobs >= 1)) || jobs=1
  echo "$jobs"
}

# build PRESET [TARGET...]: configures if that was not done yet for this folder, with FENCEGUARD_CMAKE_OPTIONS if there
# are any, and builds.
build() {
  local preset="$1" folder="$ROOT/build/$1" fresh=
  shift
  mkdir -p "$folder"
  # Two commands at once, such as a server and its client, take turns.
  exec 9>"$folder/.lock"
  flock -n 9 || { say "waiting for another build of $preset"; flock 9; }
  if ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$ROOT" "$folder/CMakeCache.txt" 2>/dev/null; then
    fresh=--fresh
  fi
  if [[ -n "$fresh" || ! -e "$folder/build.ninja" ]]; then
    # shellcheck disable=SC2086
    step "configure $preset" cmake --preset "$preset" $fresh ${FENCEGUARD_CMAKE_OPTIONS:-}
  fi
  if ! ninja -C "$folder" -n "$@" 2>/dev/null | grep -q 'no work to do'; then
    step "build $preset" ninja -C "$folder" -j "$(build_jobs)" "$@"
  fi
  exec 9>&-
}
