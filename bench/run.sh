#!/bin/bash
# Installs what is missing, builds and runs every benchmark, and writes the tables of bench/README.md and
# bench/figures.json.
# --quick          short rounds, for a look
# --folder PATH    the disk to measure; the build folder's by default
# --no-install     what is missing is yours to install
# PROGRAM …        those alone, such as redis_bench
source "$(dirname -- "${BASH_SOURCE[0]}")/../scripts/lib.sh"

readonly build="$PWD/build/release"
readonly compiled=(cache_bench advance_bench memory_bench redis_bench zookeeper_bench etcd_bench)
quick= no_install=
folder="$build"
wanted=()
while (($# > 0)); do
  case "$1" in
    --quick) quick=--quick ;;
    --no-install) no_install=1 ;;
    --folder) folder="${2:?--folder wants a path}"; shift ;;
    -*) echo "usage: bench/run.sh [--quick] [--folder PATH] [--no-install] [PROGRAM …]" >&2; exit 2 ;;
    *) wanted+=("$1") ;;
  esac
  shift
done

readonly known=" ${compiled[*]} put_bench proxy_bench proxy_memory redis_sidecar_bench postgres_bench postgres_sidecar_bench mariadb_bench "
for one in "${wanted[@]}"; do
  [[ "$known" == *" $one "* ]] || { echo "bench/run.sh: there is no $one, only$known" >&2; exit 2; }
done

[[ -n "$no_install" ]] || install_packages run short test bench
cmake --preset release -DFENCEGUARD_BENCH=ON >/dev/null
cmake --build --preset release --target fenceguard resp_load "${compiled[@]}" >&2

figures="$(mktemp -d)"
trap 'rm -rf "$figures"' EXIT
is_wanted() { # PROGRAM
  [[ ${#wanted[@]} -eq 0 || " ${wanted[*]} " == *" $1 "* ]]
}
run() { # PROGRAM COMMAND …
  local program="$1"
  shift
  is_wanted "$program" || return 0
  echo "$program ..." >&2
  local -r began=$SECONDS
  FENCEGUARD_FIGURES="$figures/$program.jsonl" "$@" ${quick:+"$quick"} --folder "$folder"
  echo "$program took $((SECONDS - began)) s" >&2
}
for program in "${compiled[@]}"; do run "$program" "$build/bench/$program"; done
for program in put_bench proxy_bench proxy_memory; do run "$program" "bench/http/$program.py" --binary "$build/fenceguard"; done
run redis_sidecar_bench bench/redis/redis_sidecar_bench.py --binary "$build/fenceguard"
readonly tree="$build/bench/postgres-fast"
if is_wanted postgres_bench || is_wanted postgres_sidecar_bench; then python3 -B tests/kit/postgres_tree.py "$tree"; fi
FENCEGUARD_POSTGRES_FAST="$tree/bin" run postgres_bench bench/postgres_bench.py
FENCEGUARD_POSTGRES_FAST="$tree/bin" run postgres_sidecar_bench bench/postgres/postgres_sidecar_bench.py \
  --binary "$build/fenceguard"
run mariadb_bench bench/mariadb_bench.py
python3 -B bench/figures.py "$figures"
