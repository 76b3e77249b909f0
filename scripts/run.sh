#!/bin/bash
# Installs what is missing, builds, and runs fenceguard with the arguments given; the demonstration if there are none.
# Safe to run again: then it takes no time. With --no-install in front, what is missing is yours to install.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
folder="$OLDPWD"

if [[ "${1:-}" == --no-install ]]; then shift; else install_packages run; fi
build release fenceguard_installed

cd "$folder"
(($# > 0)) || set -- demo
exec "$ROOT/build/release/fenceguard" "$@"
