#!/bin/bash
# Runs a command as a stage of `make test` and says how many seconds it took, on the clock and of CPU.
#   stage.sh NAME COMMAND...   run the command; its exit code is this one's
#   stage.sh lanes TARGET...   make the targets at the same time. Each is a lane: a list of stages,
#                              one after another. A stage's output is shown whole, when it has ended
#   stage.sh begin             forget the stages of the last run
#   stage.sh end               list the stages since begin; fails if there are new files in the checkout
# The list is kept in .cache/stages of the checkout, and the output of the lanes in .cache/stages.d.
set -euo pipefail
list=$(cd "$(dirname "$0")/.." && pwd)/.cache/stages
mkdir -p "$list.d"

# lanes makes targets at the same time. If one fails, the others still run to their end.
lanes() {
	local target pid lanes=() code=0
	set -m # each lane is a process group of its own, which a signal to this script ends
	for target in "$@"; do
		ISLET_STAGE_APART=1 "${MAKE:-make}" --no-print-directory "$target" </dev/null &
		lanes+=($!)
	done
	trap 'for pid in "${lanes[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done; exit 143' INT TERM HUP
	for pid in "${lanes[@]}"; do
		wait "$pid" || code=$?
	done
	return "$code"
}

# seconds prints the CPU seconds of the commands that this script has run, from the output of times.
seconds() { awk 'NR == 2 { n = split($0, t, /[ms ]+/); printf "%.0f", t[1] * 60 + t[2] + t[3] * 60 + t[4] }' "$1"; }

stage() {
	local name=$1 code=0 began took cpu
	shift
	began=$(date +%s)
	if [ -z "${ISLET_STAGE_APART:-}" ]; then
		"$@" || code=$?
	else
		echo "stage $name: begins; its output is in .cache/stages.d/$name until it has ended"
		"$@" >"$list.d/$name" 2>&1 || code=$?
		flock "$list.d" cat "$list.d/$name"
	fi
	took=$(($(date +%s) - began))
	times >"$list.d/$name.times"
	cpu=$(seconds "$list.d/$name.times")
	printf '%6d %6d  %s\n' "$took" "$cpu" "$name" >>"$list"
	echo "stage $name: $took s, $cpu s of CPU, exit code $code"
	return "$code"
}

# untracked prints the files of the checkout that git neither tracks nor ignores. Without git it prints nothing.
untracked() {
	git -C "$(dirname "$list")/.." ls-files --others --exclude-standard 2>/dev/null | LC_ALL=C sort || true
}

case $1 in
begin)
	used=$(df --output=pcent "$list.d" | tr -dc 0-9)
	[ "$used" -le 90 ] || echo "warning: $((100 - used)) % of the disk is free. Nodes with less than 10 % save space, and their tests may fail." >&2
	date +%s >"$list.d/began"
	: >"$list"
	untracked >"$list.d/untracked"
	;;
end)
	echo "seconds of each stage, on the clock and of CPU:"
	awk -v all=$(($(date +%s) - $(cat "$list.d/began"))) '{ print; cpu += $2 } END { printf "%6d %6d  in all\n", all, cpu }' "$list"
	left=$(untracked | LC_ALL=C comm -13 "$list.d/untracked" -)
	[ -z "$left" ] || { printf 'tests left these files in the checkout:\n%s\n' "$left" >&2; exit 1; }
	;;
lanes)
	shift
	lanes "$@"
	;;
*) stage "$@" ;;
esac
