#!/bin/bash
# Installs what is missing, builds, checks the format, and runs the tests: every one, but for those labelled 'again', which
# run others once more in another form.
# --short       only the demonstration and the unit tests, and builds only them
# --core        the same and the core, built source by source with the address and undefined-behaviour sanitizers
# --sanitize    also builds with those and with the thread sanitizer, and runs all tests in them but those of the command
#               line, of which those with faults run with the first two
# --change      what a change must pass: also --core, under the thread sanitizer what has threads, and 30 s of each fuzz
#               target
# --long        everything: --sanitize, --core and the fuzz targets, those labelled 'again', both forms of what others run in
#               one of two, chosen by the commit (FENCEGUARD_CHANGE), and once more with Valkey
# --debian N    also runs the short tests in a bare Debian N; with --change and --long it is there that --core runs
# --build-only  builds what would be run, and runs nothing
# --no-install  what is missing is yours to install
# Safe to run again: then it takes as long as the tests themselves.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly usage="usage: scripts/test.sh [--short | --core | --sanitize | --change | --long] [--debian 12|13] [--build-only] [--no-install]"
# The other Debian compiles file by file, so that each is seen to include what it needs, and without optimising; so does the
# preset core.
readonly debian_options="-DCMAKE_UNITY_BUILD=OFF -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O0"
readonly sanitized_labels='^(unit|conformance|fault|integration)$'
# The core: what has threads, buffers and lifetimes of its own. None of it needs more servers than scripts/packages.txt has
# for it.
readonly core_tests=(guard_test lease_test sqlite_conformance_test redis_guard_commands_test redis_guard_pipeline_test
  redis_quorum_wire_test zookeeper_session_test zookeeper_attempt_test etcd_client_test etcd_lease_pool_test
  http_client_test http_server_test http_edge_test http_tls_test lanes_test lane_fault_test proxy_edge_test
  proxy_fast_path_test proxy_unit_test upstream_test sidecar_test resp_unit_test
  resp_upstreams_test)
# What starts threads or is called by several, for the thread sanitizer. Not in it: what one thread does to bytes and states
# (etcd_client, http_edge, proxy_edge, proxy_unit, redis_quorum_wire, resp_unit, upstream), which the core has.
readonly thread_tests=(
  guard_test                     # fence stores: workers, status, fence cache, shared looks; the clock of boots
  lease_test runner_test         # a lease's renewal and watch, and what they stop
  sqlite_conformance_test        # the committer, under the three suites with their crowds
  redis_guard_commands_test      # one table of commands for many threads
  redis_guard_pipeline_test      # pipelines of several writers while the holder changes
  redis_quorum_conformance_test  # a worker for each of the quorum's servers
  redis_source_test              # the subscriber to releases, and what waits for it
  redis_fence_store_test         # a fence store on a real server: its workers, callers and status
  resp_upstreams_test            # connections of a loop, and names looked up beside it
  postgres_source_test           # sessions and their manager, the pool of leases, the listener to releases
  zookeeper_session_test zookeeper_attempt_test  # completions come from the C client's own threads
  etcd_lease_pool_test           # the pool of leases, and what expires them
  http_client_test http_server_test http_tls_test  # loops, drains, and those who reply from elsewhere
  lanes_test lanes_cut_test lane_fault_test        # the lane scheduler: its timer, its store's answers, its fencer
  proxy_fast_path_test           # loop, lanes, committer and drain at once, by both paths
  sidecar_test)                  # leases, watches, stops: everything together
short= core= sanitize= change= long= debian= build_only= no_install=
asked=("$@")
while (($# > 0)); do
  case "$1" in
    --short) short=1 ;;
    --core) core=1 ;;
    --sanitize) sanitize=1 ;;
    --change) change=1 ;;
    --long) long=1 ;;
    --debian) debian="${2:-none}" && shift ;;
    --build-only) build_only=1 ;;
    --no-install) no_install=1 ;;
    -h | --help) echo "$usage"; exit 0 ;;
    *) say "$usage"; exit 2 ;;
  esac
  shift || true
done
[[ "$debian" =~ ^(|12|13)$ && "$short$core$sanitize$change$long" =~ ^1?$ ]] || { say "$usage"; exit 2; }
done_what="${build_only:+is built}"
readonly done_what="${done_what:-passed}"
[[ -z "$short$long" ]] || unset FENCEGUARD_CHANGE
if [[ -z "$short$core$long" && "$(git rev-parse --show-toplevel 2>/dev/null)" -ef "$ROOT" ]]; then
  FENCEGUARD_CHANGE="$(git rev-parse --verify -q HEAD)" || true
  export FENCEGUARD_CHANGE
fi

skipped=
readonly told_above=" but for what was NOT RUN, see above"

# Versions of clang-format disagree; the one of Debian 12 decides.
readonly clang_format_version=14
check_format() {
  find guard adapters server demo include tests bench examples -name '*.[ch]pp' -print0 |
    xargs -0 -r clang-format --dry-run --Werror
}

# What libpqxx 7 calls deprecated has one place.
check_libpqxx() {
  ! grep -rnE --include='*.[ch]pp' --exclude=pqxx_versions.hpp \
    '(\.|->)exec(_params1?|_prepared[01]?|_n|[01])\(|pqxx::(quiet_)?errorhandler|notification_receiver' \
    guard adapters server demo include tests bench examples
}

# What the programs of asan and tsan are told; those of others do not look at it.
readonly told_sanitizers=(
  "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
  "UBSAN_OPTIONS=print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}"
  "LSAN_OPTIONS=suppressions=$ROOT/tests/leaks.txt:print_suppressions=0${LSAN_OPTIONS:+:$LSAN_OPTIONS}"
  "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:suppressions=$ROOT/tests/zookeeper/races.txt${TSAN_OPTIONS:+:$TSAN_OPTIONS}")

# one_of NAME...: the regular expression of these entries of ctest, in all their parts.
one_of() { echo "^($(IFS='|' && echo "$*"))(_[0-9]+)?\$"; }

# run_tests PRESET [CTEST ARGUMENT...]: shows a line per test, and everything of one that fails. Three times as many at once
# as there are cores, because most of a test is waiting.
run_tests() {
  [[ -z "$build_only" ]] || return 0
  local preset="$1" start=$SECONDS
  local -a command=(env "${told_sanitizers[@]}" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error)
  shift
  # The thread sanitizer of g++ 12 cannot place its shadow where the kernel randomises widely.
  if [[ "$preset" == tsan ]] && setarch -R true 2>/dev/null; then command=(setarch -R "${command[@]}"); fi
  say "run the tests of $preset ..."
  "${command[@]}" --parallel "$((3 * $(nproc)))" "$@" || fail "tests of $preset; again: ctest --test-dir build/$preset --rerun-failed --output-on-failure"
  note_stage "run the tests of $preset" $((SECONDS - start))
  say "run the tests of $preset: done in $((SECONDS - start)) s"
  note_skipped "$preset"
}

# note_skipped PRESET: a test that this machine does not allow says why, in a line that ctest itself hides.
note_skipped() {
  local line
  while read -r line; do
    say "NOT RUN in $1, $line"
    skipped="$told_above"
  done < <(grep '^SKIPPED: ' "build/$1/Testing/Temporary/LastTest.log")
}

# run_valkey_tests PRESET: what we do with Redis does Valkey as well, where this Debian has it. A change leaves it to --long.
readonly valkey_tests='^redis_(source|guard|fence_store)'
run_valkey_tests() {
  [[ -z "${FENCEGUARD_CHANGE:-}" ]] && command -v valkey-server >/dev/null || return 0
  local -a names
  mapfile -t names < <(ctest --test-dir "build/$1" -N --tests-regex "$valkey_tests" | sed -n 's/^ *Test *#[0-9]*: //p')
  build "$1" "${names[@]}"
  FENCEGUARD_REDIS_SERVER=valkey-server run_tests "$1" --tests-regex "$valkey_tests"
}

# fuzz: each target for half a minute; shows what was run, or how to run again what was found.
fuzz() {
  build release fenceguard_fuzz_targets
  [[ -z "$build_only" ]] || return 0
  step "fuzz each target for 30 s" /usr/bin/python3 -B tests/proof/fuzz.py --seconds 90 --same
  cat "$LOG_FOLDER/fuzz-each-target-for-30-s.log" >&2
}

demonstrate() {
  [[ -n "$build_only" ]] || step "run the demonstration" env "${told_sanitizers[@]}" "build/$1/fenceguard" demo
}

# run_short_tests: nothing of it needs a server.
run_short_tests() {
  build release fenceguard_demo fenceguard_unit_tests
  demonstrate release
  run_tests release --label-regex '^unit$'
}

# With Valkey where this Debian has it: of its Redis 8.0 the guard refuses streams, as that one calls incomplete what it says
# of where their keys are.
run_core_tests() {
  local FENCEGUARD_REDIS_SERVER="${FENCEGUARD_REDIS_SERVER:-}"
  build core fenceguard_demo fenceguard_unit_tests "${core_tests[@]}"
  if command -v valkey-server >/dev/null; then export FENCEGUARD_REDIS_SERVER=valkey-server; fi
  demonstrate core
  run_tests core --label-regex '^unit$'
  run_tests core --tests-regex "$(one_of "${core_tests[@]}")" --label-exclude '^unit$'
  run_valkey_tests core
}

# in_debian: the core, or the short tests, in the other Debian.
in_debian() {
  local what=short options="$debian_options" start=$SECONDS
  if [[ -n "$change$long" ]]; then what=core options=; fi
  FENCEGUARD_CMAKE_OPTIONS="$options" "$ROOT/scripts/in-debian.sh" "$debian" \
    scripts/test.sh "--$what" ${build_only:+--build-only} || fail "the $what tests in a Debian $debian"
  note_stage "the $what tests in a Debian $debian" $((SECONDS - start))
}

check_sources() {
  if clang-format --version | grep -q " version $clang_format_version\."; then
    step "check the format" check_format
  else
    say "NOT RUN, check the format: clang-format is not version $clang_format_version"
    skipped="$told_above"
  fi
  step "check that libpqxx is called by the names of its version 7" check_libpqxx
}

build_release() {
  local fuzz=
  [[ -z "$change$long" ]] || fuzz=-DFENCEGUARD_FUZZ=ON
  FENCEGUARD_CMAKE_OPTIONS="${FENCEGUARD_CMAKE_OPTIONS:-} $fuzz" build release
  # One that was configured without: before its tests, some of which read what this writes.
  if [[ -n "$fuzz" ]] && ! grep -qxF FENCEGUARD_FUZZ:BOOL=ON build/release/CMakeCache.txt; then
    step "configure the fuzz targets" cmake "$fuzz" build/release
  fi
}

# run_others: all that is built besides the preset release, in the order in which it is built ahead.
run_others() {
  if [[ -n "$debian" ]]; then
    in_debian
  elif [[ -n "$change$long" ]]; then
    run_core_tests
  fi
  if [[ -n "$change" ]]; then
    build tsan "${thread_tests[@]}"
    run_tests tsan --tests-regex "$(one_of "${thread_tests[@]}")"
  fi
  [[ -z "$change$long" ]] || fuzz
  if [[ -n "$sanitize$long" ]]; then
    build asan
    run_tests asan --label-regex "$sanitized_labels"
    build tsan
    run_tests tsan --label-regex "$sanitized_labels" --exclude-regex '^cli_'
  fi
}

# work_ahead: builds what follows with the time that the tests leave over, most of which is waiting. In a session of its own,
# because Linux shares the processor among sessions before it looks at niceness.
ahead=
work_ahead() {
  # shellcheck disable=SC2016
  setsid bash -c 'renice -n 19 -p $$; echo 19 >/proc/self/autogroup || true; exec "$@"' bash \
    "$ROOT/scripts/test.sh" "${asked[@]}" --no-install --build-only >"$LOG_FOLDER/ahead.log" 2>&1 &
  ahead=$!
}
trap '[[ -z "$ahead" ]] || kill -- "-$ahead" 2>/dev/null || true; print_stages' EXIT

if [[ -n "$short$core" ]]; then
  [[ -n "$no_install" ]] || install_packages run short ${core:+core}
  if [[ -n "$short" ]]; then run_short_tests; else run_core_tests; fi
  say "everything $done_what in $SECONDS s"
  exit 0
fi

[[ -n "$no_install" ]] || install_packages run short core test ${debian:+debian} ${change:+fuzz} ${long:+fuzz}
[[ -n "$build_only" ]] || check_sources
build_release
if [[ -z "$build_only" ]]; then
  # Of what it left undone, or failed at, the step that follows speaks.
  [[ -z "$sanitize$change$long$debian" ]] || work_ahead
  if [[ -n "$long" ]]; then run_tests release; else run_tests release --label-exclude '^again$'; fi
  run_valkey_tests release
fi
run_others
say "everything $done_what in $SECONDS s$skipped"
