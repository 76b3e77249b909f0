#!/bin/bash
# Installs what is missing, builds, and runs fenceguard with the arguments given; the demonstration if there are none.
# Safe to run again: then it takes no time.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
folder="$OLDPWD"

install_packages run
build release fenceguard

cd "$folder"
(($# > 0)) || set -- demo
exec "$ROOT/build/release/fenceguard" "$@"
