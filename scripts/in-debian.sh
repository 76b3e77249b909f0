#!/bin/bash
# Runs a command of this checkout in a bare Debian 12 or 13, whatever Linux this is: scripts/in-debian.sh 13 scripts/run.sh
#
# The root is made once, by mmdebstrap with this machine's apt configuration (proxies and other options of Acquire,
# keys, passwords; the mirror, where it is a Debian), and kept in ~/.cache/fenceguard with what was installed in it.
# There the checkout is /fenceguard and cannot be written, but for its build/, which is a folder beside the root; the
# compiler cache is this machine's. Needs root or sudo, because it mounts.
# With --bare it is a root in which nothing has been installed, and what is done to it is lost.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly usage="usage: scripts/in-debian.sh [--fresh] [--bare] 12|13 COMMAND...    (--fresh: as if it were the first time)"
fresh= bare=
if [[ "${1:-}" == --fresh ]]; then fresh=1 && shift; fi
if [[ "${1:-}" == --bare ]]; then bare=1 && shift; fi
case "${1:-}" in
  12) suite=bookworm ;;
  13) suite=trixie ;;
  -h | --help) echo "$usage"; exit 0 ;;
  *) say "$usage"; exit 2 ;;
esac
release="$1"
shift
(($# > 0)) || { say "$usage"; exit 2; }

cache="${XDG_CACHE_HOME:-$HOME/.cache}/fenceguard"
mkdir -p "$ROOT/build"
if ((EUID != 0)); then
  command -v sudo >/dev/null || fail "this mounts: run it as root, there is no sudo"
  ours=()
  for name in "${!FENCEGUARD_@}"; do ours+=("$name=${!name}"); done
  exec sudo XDG_CACHE_HOME="${cache%/*}" "${ours[@]}" "$ROOT/scripts/in-debian.sh" ${fresh:+--fresh} ${bare:+--bare} "$release" "$@"
fi

# The mirror that this machine uses, where it is a Debian.
mirror() {
  local uri
  uri="$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' \
    2>/dev/null | sed -n 1p)" || true
  echo "${uri:-http://deb.debian.org/debian}"
}

# What apt knows here of how to fetch. A program that finds the proxy is not in the root.
acquire_options() {
  ! command -v apt-config >/dev/null || apt-config dump | grep '^Acquire::' | grep -v 'Proxy-Auto-Detect'
}

# make_root FOLDER: apt within it asks as this machine does.
make_root() {
  local part
  acquire_options >"$1.options"
  mmdebstrap --variant=minbase --format=directory --aptopt="$1.options" --dpkgopt=force-unsafe-io \
    "$suite" "$1" "deb $(mirror) $suite main"
  for part in etc/apt/trusted.gpg.d etc/apt/keyrings etc/apt/auth.conf.d usr/share/keyrings; do
    if [[ -d "/$part" ]]; then mkdir -p "$1/$part" && cp -RLn "/$part/." "$1/$part"; fi
  done
  for part in etc/apt/auth.conf etc/ssl/certs/ca-certificates.crt; do
    if [[ -f "/$part" ]]; then mkdir -p "$1/${part%/*}" && cp -Ln "/$part" "$1/$part"; fi
  done
  echo 'APT::Keep-Downloaded-Packages "false";' >"$1/etc/apt/apt.conf.d/99disposable"
  mkdir -p "$1/fenceguard" "$1/var/cache/ccache"
  rm "$1.options"
}

# In a mount namespace of its own: makes ROOT the root, and runs the command there. Where there are CHANGES, a folder, what
# the command does to the root is kept there.
# shellcheck disable=SC2016
readonly enter='
  root="$1" checkout="$2" build="$3" ccache="$4" changes="$5"
  shift 5
  if [[ -n "$changes" ]]; then
    mkdir "$changes/upper" "$changes/work"
    mount -t overlay overlay -o "lowerdir=$root,upperdir=$changes/upper,workdir=$changes/work" "$root"
  else
    mount --bind "$root" "$root"
  fi
  for part in proc sys dev; do mount --rbind "/$part" "$root/$part"; done
  mount --bind "$checkout" "$root/fenceguard"
  mount -o remount,bind,ro "$root/fenceguard"
  mount --bind "$build" "$root/fenceguard/build"
  mount --bind "$ccache" "$root/var/cache/ccache"
  cd "$root"
  pivot_root . mnt
  exec chroot . bash -c "umount -l /mnt && cd /fenceguard && exec \"\$@\"" bash "$@"'

root="$cache/debian-$release${bare:+.bare}"
work="$cache/debian-$release.build/${ROOT//\//%}"
# The compiler cache of root is used as it is; that of somebody who came by sudo would get files of root.
ccache="${CCACHE_DIR:-}" ccache_size="${CCACHE_MAXSIZE:-}"
if [[ -n "${SUDO_UID:-}" ]]; then
  ccache="$cache/ccache"
elif command -v ccache >/dev/null; then
  ccache="${ccache:-$(ccache --get-config cache_dir)}" ccache_size="${ccache_size:-$(ccache --get-config max_size)}"
fi
ccache="${ccache:-$cache/ccache}"

mkdir -p "$cache" "$ccache"
exec 8>"$cache/debian-$release.lock"
flock 8
[[ -z "$fresh" ]] || rm -rf --one-file-system "$root" "$work"
if [[ ! -d "$root" ]]; then
  if ! command -v mmdebstrap >/dev/null; then
    [[ -n "$(debian_release)" ]] || fail "this needs mmdebstrap: install it, and Debian's keys (debian-archive-keyring)"
    install_packages debian
  fi
  rm -rf --one-file-system "$root.new"
  step "make a Debian $release" make_root "$root.new"
  mv "$root.new" "$root"
fi
exec 8>&-
mkdir -p "$work"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"

changes=
if [[ -n "$bare" ]]; then
  changes="$(mktemp -d "$root.XXXXXX")"
  trap 'rm -rf --one-file-system "$changes"' EXIT
fi
in_root=(env -u TMPDIR -u XDG_CACHE_HOME HOME=/root LC_ALL=C.UTF-8 CCACHE_DIR=/var/cache/ccache
  ${ccache_size:+CCACHE_MAXSIZE="$ccache_size"} PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  unshare --mount --propagation private bash -euc "$enter" bash "$root" "$ROOT" "$work" "$ccache" "$changes" "$@")
[[ -n "$bare" ]] || exec "${in_root[@]}"
"${in_root[@]}"
