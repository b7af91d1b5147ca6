#!/bin/sh
# Runs a command as a stage of `make test` and says how many seconds it took.
#   stage.sh NAME COMMAND...   run the command; its exit code is this one's
#   stage.sh begin             forget the stages of the last run
#   stage.sh end               list the stages since begin
# The list is kept in .cache/stages of the checkout.
set -eu
list=$(cd "$(dirname "$0")/.." && pwd)/.cache/stages
mkdir -p "$(dirname "$list")"
case $1 in
begin)
	: >"$list"
	exit
	;;
end)
	echo "seconds of each stage:"
	awk '{ print; all += $1 } END { printf "%6d  in all\n", all }' "$list"
	exit
	;;
esac
name=$1
shift
began=$(date +%s)
code=0
"$@" || code=$?
took=$(($(date +%s) - began))
printf '%6d  %s\n' "$took" "$name" >>"$list"
echo "stage $name: $took s, exit code $code"
exit "$code"
