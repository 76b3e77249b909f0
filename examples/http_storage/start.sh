#!/bin/bash
# Starts a storage (nginx's or Apache's WebDAV) and a guard in front of it, on free ports and in a temporary folder, and
# ends both with itself.  usage: start.sh [nginx|apache]
# Then, as it says:  DATA=… CONTROL=… ../curl_story.sh
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
guard="${FENCEGUARD:-fenceguard}"
kind="${1:-nginx}"
folder="$(mktemp -d)"
mkdir -p "$folder/data/accounts" "$folder/data/fenceguard-demo"  # Apache makes no folders of its own
pids=()
finish() {
  kill "${pids[@]}" 2>/dev/null || true
  wait || true
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 0' INT TERM

port="${STORAGE_PORT:-$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')}"
sed -e "s#@FOLDER@#$folder#g" -e "s#@PORT@#$port#g" "$here/$kind.conf" > "$folder/$kind.conf"
if [[ "$EUID" == 0 ]]; then chmod 755 "$folder" && chown -R www-data "$folder/data" "$folder"; fi
case "$kind" in
  nginx) nginx -e stderr -c "$folder/nginx.conf" -g "$([[ "$EUID" == 0 ]] && echo 'user www-data;')" & ;;
  apache)
    if [[ "$EUID" == 0 ]]; then printf 'User www-data\nGroup www-data\n' >> "$folder/apache.conf"; fi
    apache2 -DFOREGROUND -f "$folder/apache.conf" & ;;
  *) echo "usage: start.sh [nginx|apache]" >&2; exit 2 ;;
esac
pids+=($!)
for _ in {1..100}; do
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
  sleep 0.05
done

mkfifo "$folder/said"
"$guard" serve --storage "http://127.0.0.1:$port" --state "sqlite:$folder/state.db" --init --settled --settle 15s \
  --listen 127.0.0.1:0 --control 127.0.0.1:0 > "$folder/said" &
pids+=($!)
read -r _ data control < "$folder/said"
echo "DATA=http://${data#data=} CONTROL=http://${control#control=}"
wait -n "${pids[@]}"
echo "start.sh: a server ended" >&2
exit 1
