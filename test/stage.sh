#!/bin/bash
# Runs a command as a stage of `make test` and says how many seconds it took, on the clock and of CPU.
#   stage.sh NAME COMMAND...   run the command; its exit code is this one's
#   stage.sh begin             forget the stages of the last run
#   stage.sh end               list the stages since begin
# The list is kept in .cache/stages of the checkout, and the times in .cache/stages.d.
set -euo pipefail
list=$(cd "$(dirname "$0")/.." && pwd)/.cache/stages
mkdir -p "$list.d"

# seconds prints the CPU seconds of the commands that this script has run, from the output of times.
seconds() { awk 'NR == 2 { n = split($0, t, /[ms ]+/); printf "%.0f", t[1] * 60 + t[2] + t[3] * 60 + t[4] }' "$1"; }

stage() {
	local name=$1 code=0 began took cpu
	shift
	began=$(date +%s)
	"$@" || code=$?
	took=$(($(date +%s) - began))
	times >"$list.d/$name.times"
	cpu=$(seconds "$list.d/$name.times")
	printf '%6d %6d  %s\n' "$took" "$cpu" "$name" >>"$list"
	echo "stage $name: $took s, $cpu s of CPU, exit code $code"
	return "$code"
}

case $1 in
begin)
	date +%s >"$list.d/began"
	: >"$list"
	;;
end)
	echo "seconds of each stage, on the clock and of CPU:"
	awk -v all=$(($(date +%s) - $(cat "$list.d/began"))) '{ print; cpu += $2 } END { printf "%6d %6d  in all\n", all, cpu }' "$list"
	;;
*) stage "$@" ;;
esac
