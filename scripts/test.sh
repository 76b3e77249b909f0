#!/bin/bash
# Installs what is missing, builds, checks the format, and runs every test.
# --short       only the demonstration and the unit tests, and builds only them
# --sanitize    also builds with the address, undefined-behaviour and thread sanitizers and runs all tests in them but
#               those of the command line, of which those with faults run with the first two
# --change      what a change must pass: without the tests that run others once more in another form, under the
#               sanitizers only the core: what has threads, buffers and lifetimes of its own; and 30 s of each fuzz target
# --debian N    also runs the short tests in a bare Debian N
# --no-install  what is missing is yours to install
# Safe to run again: then it takes as long as the tests themselves.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly usage="usage: scripts/test.sh [--short | --sanitize | --change] [--debian 12|13] [--no-install]"
# The other Debian compiles file by file, so that each is seen to include what it needs, and without optimising.
readonly debian_options="-DCMAKE_UNITY_BUILD=OFF -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O0"
readonly sanitized_labels='^(unit|conformance|fault|integration)$'
readonly core_tests=(guard_test lease_test sqlite_conformance_test redis_guard_commands_test redis_guard_pipeline_test
  redis_quorum_wire_test zookeeper_session_test zookeeper_attempt_test etcd_client_test etcd_lease_pool_test
  http_client_test http_server_test http_edge_test http_tls_test lanes_test lane_fault_test proxy_edge_test
  proxy_fast_path_test proxy_unit_test upstream_test sidecar_test resp_unit_test)
short= sanitize= change= debian= no_install=
while (($# > 0)); do
  case "$1" in
    --short) short=1 ;;
    --sanitize) sanitize=1 ;;
    --change) change=1 ;;
    --debian) debian="${2:-none}" && shift ;;
    --no-install) no_install=1 ;;
    -h | --help) echo "$usage"; exit 0 ;;
    *) say "$usage"; exit 2 ;;
  esac
  shift || true
done
[[ "$debian" =~ ^(|12|13)$ && "$short$sanitize$change" =~ ^1?$ ]] || { say "$usage"; exit 2; }

skipped=
readonly told_above=" but for what was NOT RUN, see above"

# Versions of clang-format disagree; the one of Debian 12 decides.
readonly clang_format_version=14
check_format() {
  find guard adapters server include tests bench examples -name '*.[ch]pp' -print0 |
    xargs -0 -r clang-format --dry-run --Werror
}

# What libpqxx 7 calls deprecated has one place.
check_libpqxx() {
  ! grep -rnE --include='*.[ch]pp' --exclude=pqxx_versions.hpp \
    '(\.|->)exec(_params1?|_prepared[01]?|_n|[01])\(|pqxx::(quiet_)?errorhandler|notification_receiver' \
    guard adapters server include tests bench examples
}

# run_tests PRESET [CTEST ARGUMENT...]: shows a line per test, and everything of one that fails. Three times as many at once
# as there are cores, because most of a test is waiting.
run_tests() {
  local preset="$1" start=$SECONDS
  local -a command=(ctest --test-dir "build/$preset" --output-on-failure --no-tests=error)
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

# run_valkey_tests PRESET: what we do with Redis does Valkey as well, where this Debian has it.
readonly valkey_tests='^redis_(source|guard|fence_store)'
run_valkey_tests() {
  command -v valkey-server >/dev/null || return 0
  FENCEGUARD_REDIS_SERVER=valkey-server run_tests "$1" --tests-regex "$valkey_tests"
}

# fuzz: each target for half a minute; shows what was run, or how to run again what was found.
fuzz() {
  step "fuzz each target for 30 s" /usr/bin/python3 -B tests/proof/fuzz.py --seconds 90 --same
  cat "$LOG_FOLDER/fuzz-each-target-for-30-s.log" >&2
}

# run_short_tests: nothing of it needs a server.
run_short_tests() {
  build release fenceguard fenceguard_unit_tests
  step "run the demonstration" build/release/fenceguard demo
  run_tests release --label-regex '^unit$'
}

# work_ahead: builds for the sanitizers and the other Debian with the time that the tests leave over, most of which is
# waiting. In a session of its own, because Linux shares the processor among sessions before it looks at niceness.
ahead=
work_ahead() {
  local -a presets=()
  [[ -z "$sanitize" ]] || presets=(asan tsan)
  # shellcheck disable=SC2016
  FENCEGUARD_CMAKE_OPTIONS= setsid bash -c 'source "$1/scripts/lib.sh"; debian="$2" debian_options="$3"; shift 3
    renice -n 19 -p $$; echo 19 >/proc/self/autogroup || true
    for preset in "$@"; do (build "$preset") || true; done
    [[ -z "$debian" ]] || FENCEGUARD_CMAKE_OPTIONS="$debian_options" "$ROOT/scripts/in-debian.sh" "$debian" scripts/test.sh --short' \
    "$0" "$ROOT" "$debian" "$debian_options" "${presets[@]}" >"$LOG_FOLDER/ahead.log" 2>&1 &
  ahead=$!
}
trap '[[ -z "$ahead" ]] || kill -- "-$ahead" 2>/dev/null || true; print_stages' EXIT

if [[ -n "$short" ]]; then
  [[ -n "$no_install" ]] || install_packages run short
  run_short_tests
  say "everything passed in $SECONDS s"
  exit 0
fi

[[ -n "$no_install" ]] || install_packages run short test ${debian:+debian} ${change:+fuzz}
if clang-format --version | grep -q " version $clang_format_version\."; then
  step "check the format" check_format
else
  say "NOT RUN, check the format: clang-format is not version $clang_format_version"
  skipped="$told_above"
fi
step "check that libpqxx is called by the names of its version 7" check_libpqxx
build release
# Of what it left undone, or failed at, the step that follows speaks.
[[ -z "$sanitize$debian" ]] || work_ahead
run_tests release ${change:+--label-exclude ^again$}
run_valkey_tests release
[[ -z "$change" ]] || fuzz
if [[ -n "$sanitize$change" ]]; then
  export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
  export UBSAN_OPTIONS="print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}"
  export LSAN_OPTIONS="suppressions=$ROOT/tests/leaks.txt:print_suppressions=0${LSAN_OPTIONS:+:$LSAN_OPTIONS}"
  export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:suppressions=$ROOT/tests/zookeeper/races.txt${TSAN_OPTIONS:+:$TSAN_OPTIONS}"
  if [[ -n "$change" ]]; then
    pattern="^($(IFS='|' && echo "${core_tests[*]}"))\$"
    for preset in asan tsan; do
      build "$preset" "${core_tests[@]}"
      run_tests "$preset" --tests-regex "$pattern"
    done
  else
    build asan
    run_tests asan --label-regex "$sanitized_labels"
    build tsan
    run_tests tsan --label-regex "$sanitized_labels" --exclude-regex '^cli_'
  fi
fi
if [[ -n "$debian" ]]; then
  start=$SECONDS
  wait "$ahead" || true
  FENCEGUARD_CMAKE_OPTIONS="$debian_options" "$ROOT/scripts/in-debian.sh" "$debian" scripts/test.sh --short || fail "the short tests in a Debian $debian"
  note_stage "the short tests in a Debian $debian, what was not built ahead included" $((SECONDS - start))
fi
say "everything passed in $SECONDS s$skipped"
