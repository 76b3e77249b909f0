#!/bin/bash
# Installs what is missing, builds, checks the format, and runs every test. With --sanitize also builds with the
# address, undefined-behaviour and thread sanitizers and runs all tests in them but those of the command line.
# Safe to run again: then it takes as long as the tests themselves.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly usage="usage: scripts/test.sh [--sanitize]"
readonly sanitized_labels='^(unit|conformance|fault|integration)$'
sanitize=
for argument in "$@"; do
  case "$argument" in
    --sanitize) sanitize=1 ;;
    -h | --help) echo "$usage"; exit 0 ;;
    *) say "$usage"; exit 2 ;;
  esac
done

check_format() {
  find guard adapters tests bench examples -name '*.[ch]pp' -print0 |
    xargs -0 -r clang-format --dry-run --Werror
}

# run_tests PRESET [CTEST ARGUMENT...]: shows a line per test, and everything of one that fails. Twice as many at once
# as there are cores, because most of a test is waiting.
run_tests() {
  local preset="$1" start=$SECONDS
  local -a command=(ctest --test-dir "build/$preset" --output-on-failure --no-tests=error)
  shift
  # The thread sanitizer of g++ 12 cannot place its shadow where the kernel randomises widely.
  if [[ "$preset" == tsan ]] && setarch -R true 2>/dev/null; then command=(setarch -R "${command[@]}"); fi
  say "run the tests of $preset ..."
  "${command[@]}" --parallel "$((2 * $(nproc)))" "$@" || fail "tests of $preset; again: ctest --test-dir build/$preset --rerun-failed --output-on-failure"
  say "run the tests of $preset: done in $((SECONDS - start)) s"
  note_skipped "$preset"
}

# note_skipped PRESET: a test that this machine does not allow says why, in a line that ctest itself hides.
skipped=
note_skipped() {
  local line
  while read -r line; do
    say "NOT RUN in $1, $line"
    skipped=" but for what was SKIPPED, see above"
  done < <(grep '^SKIPPED: ' "build/$1/Testing/Temporary/LastTest.log")
}

# build_ahead PRESET: builds it with the time that the tests leave over, most of which is waiting. In a session of its
# own, because Linux shares the processor among sessions before it looks at niceness.
ahead=
build_ahead() {
  setsid bash -c 'source "$1/scripts/lib.sh"; renice -n 19 -p $$; echo 19 >/proc/self/autogroup || true; build "$2"' \
    "$0" "$ROOT" "$1" >"$LOG_FOLDER/ahead-$1.log" 2>&1 &
  ahead=$!
}
# Of what it left undone, or failed at, the build that follows speaks.
end_ahead() {
  [[ -n "$ahead" ]] || return 0
  wait "$ahead" || true
  ahead=
}
trap '[[ -z "$ahead" ]] || kill -- "-$ahead" 2>/dev/null' EXIT

install_packages run test
step "check the format" check_format
build release
[[ -z "$sanitize" ]] || build_ahead asan
run_tests release
if [[ -n "$sanitize" ]]; then
  export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
  export UBSAN_OPTIONS="print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}"
  export LSAN_OPTIONS="suppressions=$ROOT/tests/leaks.txt:print_suppressions=0${LSAN_OPTIONS:+:$LSAN_OPTIONS}"
  export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$ROOT/tests/zookeeper/races.txt${TSAN_OPTIONS:+:$TSAN_OPTIONS}"
  for preset in asan tsan; do
    end_ahead
    build "$preset"
    [[ "$preset" != asan ]] || build_ahead tsan
    run_tests "$preset" --label-regex "$sanitized_labels"
  done
fi
say "everything passed in $SECONDS s$skipped"
