#!/bin/sh
# Builds and runs every benchmark, and prints what the tables of bench/README.md hold. Flags: --quick for short rounds,
# --folder PATH for the disk to measure (the build folder's by default).
set -eu

cd "$(dirname -- "$0")/.."
build=$(pwd)/build/release
quick=
folder=
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=--quick ;;
    --folder) folder=$2; shift ;;
    *) echo "usage: bench/run.sh [--quick] [--folder PATH]" >&2; exit 2 ;;
  esac
  shift
done

cmake --preset release -DFENCEGUARD_BENCH=ON >/dev/null
cmake --build --preset release --target fenceguard cache_bench advance_bench memory_bench redis_bench \
  zookeeper_bench etcd_bench >&2
folder=${folder:-$build}

lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
for program in "$build/bench/cache_bench" "$build/bench/advance_bench" "$build/bench/memory_bench" "$build/bench/redis_bench" \
  "$build/bench/zookeeper_bench" "$build/bench/etcd_bench" \
  "bench/http/put_bench.py --binary $build/fenceguard" "bench/http/proxy_bench.py --binary $build/fenceguard" \
  "bench/http/proxy_memory.py --binary $build/fenceguard" \
  bench/postgres_bench.py; do
  $program $quick --folder "$folder" | tee -a "$lines" >&2
done

echo "| what | ratio | ours | other | target |"
echo "| --- | --- | --- | --- | --- |"
sed -E 's/^(.*): (.*) \(ours (.*), other ([^)]*)\), target (.*)$/| \1 | \2 | \3 | \4 | \5 |/' "$lines"
