#!/bin/bash
# Tries the packages in build/packages as their users would, in a Debian in which nothing is installed yet and which may be
# spoiled: scripts/in-debian.sh --bare 12 packaging/try.sh [--boot]. scripts/package.sh calls it.
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

readonly unit=/usr/lib/systemd/system/fenceguard.service settings=/etc/fenceguard/fenceguard.ini state=/var/lib/fenceguard
# What 'systemd-analyze security' may say at most, in tenths.
readonly exposure_max=20

apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Use-Pty=0 "$@" -y --no-install-recommends; }
install_ours() { apt_get install "$ROOT"/build/packages/"$1"_*_"$(dpkg --print-architecture)".deb; }
expect() {
  local what="$1"
  shift
  "$@" || fail "$what: $*"
}

try_program() {
  expect "the version" grep -qF "fenceguard $(dpkg-query -W -f '${Version}' fenceguard)" <(fenceguard --version)
  expect "the settings are those of the example" cmp "$settings" <(fenceguard serve --example-config)
  expect "the settings are for the service alone" test "$(stat -c '%U:%G %a' "$settings")" = "root:fenceguard 640"
  expect "a page for a command" grep -q -- '--listen ADDR' <(man fenceguard-serve)
  local status=0
  fenceguard demo 2>/tmp/demo || status=$?
  expect "no demonstrations are in it" test "$status" = 3
  expect "where the demonstrations are" grep -q 'the package fenceguard-demo$' /tmp/demo
}

try_demo() {
  expect "the version" grep -qF "fenceguard-demo $(dpkg-query -W -f '${Version}' fenceguard-demo)" <(fenceguard-demo --version)
  expect "its page" grep -q -- 'gc-pause' <(man fenceguard-demo)
  fenceguard demo
}

try_unit_file() {
  systemd-analyze verify "$unit"
  systemd-analyze security --offline=yes --threshold="$exposure_max" --no-pager "$unit"
}

# As the unit does it, but by hand.
serve_as_service() {
  mkdir -p "$state" && chown fenceguard: "$state" && chmod 700 "$state"
  setpriv --reuid=fenceguard --regid=fenceguard --init-groups --no-new-privs --inh-caps=-all \
    bash -c "cd $state && exec fenceguard serve --config $settings" >"$state/../serve.out" &
  local guard=$! i
  for ((i = 0; i < 600; ++i)); do
    if grep -q '^listening' "$state/../serve.out"; then break; fi
    kill -0 "$guard" || fail "the guard did not start"
    sleep 0.1
  done
  fenceguard lease acquire --server http://127.0.0.1:7421 --resource a --wait 1m
  kill "$guard"
  wait "$guard"
}

# A project with one component, built by CMake and by pkg-config; and every other can be found and linked.
try_library() {
  cmake -S tests/install/redis_only -B /tmp/by-cmake -DFENCEGUARD_COMPONENTS=redis
  cmake --build /tmp/by-cmake
  /tmp/by-cmake/redis_only
  # shellcheck disable=SC2046
  g++ -std=c++20 tests/install/redis_only/main.cpp -o /tmp/by-pkg-config $(pkg-config --cflags --libs fenceguard-redis)
  /tmp/by-pkg-config
  local component
  for component in $(cd /usr/include/fenceguard && pkg-config --list-all | sed -n 's/^fenceguard-\([a-z_]*\) .*/\1/p'); do
    echo "component $component"
    mkdir -p "/tmp/$component"
    cat >"/tmp/$component/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(one LANGUAGES CXX)
find_package(fenceguard CONFIG REQUIRED COMPONENTS $component)
file(WRITE main.cpp "int main() {}")
add_executable(one main.cpp)
target_link_libraries(one PRIVATE -Wl,--whole-archive fenceguard::$component -Wl,--no-whole-archive)
END
    cmake -S "/tmp/$component" -B "/tmp/$component/build" >/dev/null
    # shellcheck disable=SC2046
    g++ -std=c++20 "/tmp/$component/main.cpp" -o "/tmp/$component/one" $(pkg-config --cflags --libs "fenceguard-$component")
  done
}

remove_ours() {
  apt_get remove fenceguard
  expect "removal leaves the data" test -e "$state/fenceguard.db"
  expect "removal leaves the settings" test -e "$settings"
  expect "removal takes the unit" test ! -e "$unit"
}
purge_ours() {
  apt_get purge fenceguard
  expect "purge forgets the data" test ! -e "$state"
  expect "purge forgets the settings" test ! -e "$settings"
}

step "update the package lists" apt-get update
step "install fenceguard" install_ours fenceguard
step "install what shows manual pages" apt_get install man-db
step "try the program" try_program
step "install fenceguard-demo" install_ours fenceguard-demo
step "try the demonstration" try_demo
step "check the unit" try_unit_file
grep '^→' "$LOG_FOLDER/check-the-unit.log" >&2
if [[ "${1:-}" == --boot ]]; then
  step "try the service" packaging/try_booted.sh
else
  step "try the service without systemd" serve_as_service
fi
step "install libfenceguard-dev" install_ours libfenceguard-dev
step "install a compiler" apt_get install g++ cmake make
step "try the library" try_library
step "remove fenceguard" remove_ours
step "install fenceguard again" install_ours fenceguard
step "try the service on what was left" serve_as_service
step "purge fenceguard" purge_ours
