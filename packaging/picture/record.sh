#!/bin/sh
# Records the commands of the README's picture in a terminal, on the node that make run has started, and draws them.
#   record.sh PROGRAM FILE
# PROGRAM is bin/islet, FILE the SVG to write.
set -eu
program=$(realpath "$1")
to=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$program" "$work/islet"
PATH="$work:$PATH"
export PATH ISLET_SOCKET=/run/islet-demo/islet.sock TERM=xterm-256color
log=$(islet pods --no-headers | awk '/^log-/ { print $1 }')
[ -n "$log" ] || { echo "record.sh: the demo's pods do not run: sudo make run" >&2; exit 1; }

# show prints a command, and runs it in a terminal of 110 columns.
show() {
	echo "\$ $1"
	script -qec "stty cols 110; $1" /dev/null </dev/null
	echo
}

{
	show 'islet pods -o wide'
	show "islet logs --tail=2 $log"
	show 'islet top node'
	show 'islet status'
} >"$work/text"
(cd "$here" && go build -o "$work/picture" .)
"$work/picture" -title "a node, started by sudo make run" -o "$to" <"$work/text"
echo "record.sh: wrote $to"
