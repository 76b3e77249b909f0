#!/bin/bash
# Tries the service under a systemd that is started for it, in namespaces of its own: as root in a Debian that may be
# spoiled and has the package, see try.sh. With --inside it is the try itself, a service of that systemd.
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

readonly settings=/etc/fenceguard/fenceguard.ini state=/var/lib/fenceguard service=fenceguard.service
readonly server=http://127.0.0.1:7421

# boot: its exit status is that of the try. In a cgroup of its own, which is all that it sees of them.
boot() {
  local groups=/sys/fs/cgroup group status=0
  [[ "$(stat -f -c %T "$groups")" == cgroup2fs ]] || groups=/sys/fs/cgroup/unified
  group="$groups/fenceguard-try-$$"
  cat >/etc/systemd/system/try.service <<END
[Unit]
After=multi-user.target
FailureAction=exit
SuccessAction=exit
[Service]
Type=oneshot
ExecStart=$ROOT/packaging/try_booted.sh --inside
StandardOutput=append:/try.log
StandardError=append:/try.log
END
  printf '[Unit]\nRequires=multi-user.target try.service\nAllowIsolate=yes\n' >/etc/systemd/system/try.target
  systemd-machine-id-setup >/dev/null
  mkdir "$group"
  # shellcheck disable=SC2016
  (
    echo "$BASHPID" >"$group/cgroup.procs"
    exec timeout --signal=KILL 600 unshare --cgroup --pid --mount --uts --ipc --net --kill-child --fork bash -euc '
      mount -t proc proc /proc
      mount -o bind,ro /proc/sys /proc/sys
      mount -t cgroup2 cgroup2 /sys/fs/cgroup
      for folder in /run /tmp; do mount -t tmpfs tmpfs "$folder"; done
      # A systemd in a container expects this: credentials are mounted by a child of it.
      mount --make-rshared /
      exec env -i container=unshare PATH="$PATH" LC_ALL=C.UTF-8 /usr/lib/systemd/systemd --unit=try.target --log-target=journal'
  ) || status=$?
  find "$group" -depth -type d -exec rmdir {} +
  cat /try.log
  return "$status"
}

expect() {
  local what="$1"
  shift
  if "$@"; then echo "as expected: $what"; else fail "$what: $*"; fi
}
# until WHAT COMMAND...: waits for it, with a limit.
until_true() {
  local what="$1" i
  shift
  for ((i = 0; i < 600; ++i)); do
    if "$@"; then echo "as expected: $what"; return 0; fi
    sleep 0.2
  done
  fail "$what did not come true: $*"
}
property() { systemctl show --value -p "$1" "$service"; }
is() { [[ "$(property "$1")" == "$2" ]]; }
status_has() { [[ "$(property StatusText)" == *"$1"* ]]; }
# With -q, grep would end at the first line, and journalctl by the signal of a pipe that nobody reads.
log_has() { journalctl --sync && journalctl -u "$service" -o cat -b | grep -F -- "$1" >/dev/null; }
times_in_log() { journalctl --sync && journalctl -u "$service" -o cat -b | grep -cF -- "$1" || true; }
as_service() { (cd "$state" && runuser -u fenceguard -- "$@"); }
# with_token TOKEN: a lease is given for it.
with_token() { FENCEGUARD_SERVER_TOKEN="$1" fenceguard lease acquire --server "$server" --resource "r$RANDOM" --ttl 10m; }
# Five starts in ten seconds are too many for systemd, and not for a try.
restart() { systemctl reset-failed "$service" && systemctl restart "$service"; }
refuses() { ! "$@"; }

try_start() {
  expect "it runs after the boot" is ActiveState active
  expect "it says what it guards" status_has "guards sqlite:"
  expect "as its own user" test "$(stat -c %U "/proc/$(property MainPID)")" = fenceguard
  expect "its state is its own" test "$(stat -c '%U %a' "$state")" = "fenceguard 700"
  expect "it gives a lease" fenceguard lease acquire --server "$server" --resource a
  systemd-analyze security --no-pager --threshold=20 "$service" | tail -n 1
}

try_second_instance() {
  local said
  said="$(as_service fenceguard serve --config "$settings" --listen 127.0.0.1:0 --control 127.0.0.1:0 2>&1)" && fail "it runs twice"
  echo "$said"
  expect "the second says why" grep -q 'fenceguard: serve: .*another' <<<"$said"
}

try_wrong_setting() {
  cp -p "$settings" /root/settings
  echo 'cache = many' >>"$settings"
  expect "the restart fails" refuses restart
  expect "and is not tried again" is SubState failed
  expect "not once" is NRestarts 0
  expect "the sentence is there once" test "$(times_in_log 'fenceguard: serve: --cache')" = 1
  cp -p /root/settings "$settings"
  restart
}

try_secrets() {
  (umask 077 && echo 'admin credential-0123456789' >/etc/fenceguard/credentials/tokens)
  cp -p "$settings" /root/settings
  echo 'control-token-file = /run/credentials/fenceguard.service/secret_tokens' >>"$settings"
  restart
  expect "a credential is read" with_token credential-0123456789
  expect "another is refused" refuses with_token something-else-0123456789
  echo 'admin replaced-0123456789' >/etc/fenceguard/credentials/tokens
  systemctl reload "$service"
  until_true "a reload reads tokens" log_has event=tokens_reloaded
  expect "but a credential is that of the start" with_token credential-0123456789

  cp -p /root/settings "$settings"
  echo 'control-token-file = /etc/fenceguard/tokens' >>"$settings"
  echo 'admin first-0123456789' >/etc/fenceguard/tokens
  chown fenceguard: /etc/fenceguard/tokens && chmod 600 /etc/fenceguard/tokens
  restart
  expect "a file of the service's own is read" with_token first-0123456789
  echo 'admin second-0123456789' >/etc/fenceguard/tokens
  systemctl reload "$service"
  until_true "and read again by a reload" with_token second-0123456789
  echo nonsense >/etc/fenceguard/tokens
  systemctl reload "$service"
  until_true "a bad one is told in the status" status_has "see the log"
  expect "and not taken" with_token second-0123456789
  cp -p /root/settings "$settings"
  restart
}

try_watchdog() {
  local before
  mkdir -p "/run/systemd/system/$service.d"
  printf '[Service]\nWatchdogSec=10s\nRestartSec=100ms\n' >"/run/systemd/system/$service.d/quick.conf"
  systemctl daemon-reload
  restart
  before="$(property MainPID)"
  kill -KILL "$before"
  until_true "one that was killed is started again" is NRestarts 1
  until_true "and runs" is ActiveState active
  kill -STOP "$(property MainPID)"
  until_true "one that is stopped is killed by the watchdog" log_has 'Watchdog timeout'
  until_true "and started again" is NRestarts 2
  until_true "and runs again" is ActiveState active
  rm "/run/systemd/system/$service.d/quick.conf"
  systemctl daemon-reload
}

try_drop_in() {
  local place="/run/systemd/system/$service.d"
  mkdir -p "$place"
  printf '[Service]\n%s\n' AmbientCapabilities=CAP_NET_BIND_SERVICE CapabilityBoundingSet=CAP_NET_BIND_SERVICE PrivateUsers=no \
    UMask=0007 >"$place/more.conf"
  cp -p "$settings" /root/settings
  printf 'listen = 127.0.0.1:80\ncontrol = unix:/run/fenceguard/control.sock\n' >>"$settings"
  systemctl daemon-reload
  restart
  expect "a port below 1024" status_has 'data 127.0.0.1:80,'
  useradd --no-create-home --groups fenceguard member
  expect "a socket for the group" runuser -u member -- fenceguard lease acquire --server unix:/run/fenceguard/control.sock \
    --resource b --wait 1m
  cp -p /root/settings "$settings"
  rm "$place/more.conf"
  systemctl daemon-reload
  restart
}

try_older_state() {
  systemctl stop "$service"
  expect "a stop is clean" log_has 'event=stopped clean=true'
  mkdir /root/kept && mv "$state"/* /root/kept/
  zcat tests/upgrade/sqlite-0.1.0.db.gz >"$state/fenceguard.db"
  chown fenceguard: "$state/fenceguard.db"
  systemctl start "$service"
  expect "the state of 0.1.0 is opened" fenceguard fence show --server "$server" --resource accounts/42
  systemctl stop "$service"
  rm "$state"/*
  mv /root/kept/* "$state/"
  systemctl start "$service"
}

# The same package with a lower version and other defaults stands for the one before.
try_upgrade() {
  local new before older=/root/older
  new="$(echo "$ROOT"/build/packages/fenceguard_*_"$(dpkg --print-architecture)".deb)"
  dpkg-deb --raw-extract "$new" "$older"
  sed -i 's/^Version: .*/Version: 0.0.1/' "$older/DEBIAN/control"
  echo '# as it was before' >>"$older$settings"
  dpkg-deb -Znone --build "$older" "$older.deb"
  dpkg --install --force-downgrade --force-confnew "$older.deb"
  cp -p "$settings" /root/settings
  echo 'max-jump = 1000' >>"$settings"
  restart
  expect "the version before gives a lease" fenceguard lease acquire --server "$server" --resource kept --ttl 10m
  fenceguard lease show --server "$server" --resource kept --json | sed 's/,"remaining_ms.*//' >/root/lease
  fenceguard fence show --server "$server" --resource kept --json >/root/fence
  before="$(property MainPID)"

  dpkg --install --force-confdef --force-confold "$new"
  expect "the newer one is installed" test "$(dpkg-query -W -f '${Version}' fenceguard)" = "$(dpkg-deb -f "$new" Version)"
  expect "and runs" is ActiveState active
  expect "started anew" test "$(property MainPID)" != "$before"
  expect "with the fences that it had" cmp /root/fence <(fenceguard fence show --server "$server" --resource kept --json)
  expect "and the leases" cmp /root/lease \
    <(fenceguard lease show --server "$server" --resource kept --json | sed 's/,"remaining_ms.*//')
  expect "settings that were edited stay" grep -qx 'max-jump = 1000' "$settings"
  expect "what they are now is beside them" cmp "$settings.dpkg-dist" <(fenceguard serve --example-config)
  expect "they are in force" refuses fenceguard fence advance --server "$server" --resource kept --token 100000 --holder h
  mv "$settings.dpkg-dist" "$settings"
  chown root:fenceguard "$settings" && chmod 640 "$settings"
  restart
}

if [[ "${1:-}" != --inside ]]; then
  boot
  exit
fi
trap '(($? == 0)) || journalctl --no-pager -u "$service" -b -n 40' EXIT
for part in start second_instance wrong_setting secrets watchdog drop_in older_state upgrade; do
  echo "--- $part"
  "try_$part"
done
systemctl stop "$service"
