#!/bin/bash
# Makes the Debian packages fenceguard, fenceguard-demo and libfenceguard-dev, for Debian 12 and 13 or for the one that is
# named, and tries them in a bare root of it: build/packages/debian-12/*.deb, debian-13/*.deb. Needs what scripts/in-debian.sh needs.
# --here   for the Debian that this is, into build/packages, and tries nothing
# --no-boot  tries the service without booting a systemd, which not every machine allows
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly usage="usage: scripts/package.sh [--no-boot] [12|13] | --here"
boot=--boot
case "${1:-}" in
  --no-boot) boot= && shift ;;
  -h | --help) echo "$usage"; exit 0 ;;
esac
[[ "${1:-}" =~ ^(|12|13|--here)$ && $# -le 1 ]] || { say "$usage"; exit 2; }

make_packages() {
  rm -rf build/packages
  cpack --config build/package/CPackConfig.cmake -B "$ROOT/build/packages"
  rm -rf build/packages/_CPack_Packages
}

# Debian's own flags, by which what is installed is hardened; without debug information, which nobody would keep.
package_here() {
  install_packages run package
  export DEB_BUILD_MAINT_OPTIONS=hardening=+all DEB_CXXFLAGS_MAINT_STRIP=-g
  CXXFLAGS="$(dpkg-buildflags --get CPPFLAGS) $(dpkg-buildflags --get CXXFLAGS)" LDFLAGS="$(dpkg-buildflags --get LDFLAGS)"
  export CXXFLAGS LDFLAGS
  build package fenceguard_installed
  step "make the packages" make_packages
  step "check them with lintian" lintian --fail-on error,warning build/packages/*.deb
}

package_for() {
  local release="$1" folder="build/packages/debian-$1"
  scripts/in-debian.sh "$release" scripts/package.sh --here
  mkdir -p "$folder"
  rm -f "$folder"/*.deb
  scripts/in-debian.sh "$release" tar -C build/packages -c . | tar -C "$folder" -x
  scripts/in-debian.sh --bare "$release" packaging/try.sh $boot
  say "Debian $release: $(cd "$folder" && echo *.deb) in $folder"
}

if [[ "${1:-}" == --here ]]; then
  package_here
else
  for release in ${1:-12 13}; do package_for "$release"; done
fi
