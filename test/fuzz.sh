#!/bin/bash
# Runs every fuzzer of the project for a time each, one after another, and tells at the end
# which failed. A failing input is left in testdata/fuzz of its package: go test finds it there.
#	test/fuzz.sh TIME [PATTERN]     TIME as go test -fuzztime takes it; PATTERN of the names
set -euo pipefail
time=${1:?a time, as 30s or 1000x}
pattern=${2:-.}
cd "$(dirname "$0")/.."
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failed=() ran=0
while IFS=: read -r file line; do
	name=${line#func }
	name=${name%%(*}
	[[ $name =~ $pattern ]] || continue
	dir=$(dirname "$file")
	module=$dir
	while [ ! -f "$module/go.mod" ]; do module=$(dirname "$module"); done
	package=./$(realpath --relative-to="$module" "$dir")
	echo "== $package $name"
	ran=$((ran + 1))
	(cd "$module" && go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$package") 2>&1 | tee "$out" || {
		# Go before 1.27 may call it a failure that the time is over, mostly on a busy machine
		# (https://go.dev/issue/75804). An input that fails, or hangs, it writes or names.
		if grep -qx ' *context deadline exceeded' "$out" && ! grep -qE 'Failing input written|seed corpus entry' "$out"; then
			echo "$package $name: the time was over in the middle of an input, of which none failed"
		else
			failed+=("$package $name")
		fi
	}
done < <(git ls-files -co --exclude-standard '*_test.go' | sort | xargs grep -o '^func Fuzz[A-Za-z0-9_]*(' /dev/null)
if [ "$ran" = 0 ]; then
	echo "no fuzzer has a name like $pattern" >&2
	exit 1
fi
if [ ${#failed[@]} -gt 0 ]; then
	printf 'FAILED: %s\n' "${failed[@]}" >&2
	exit 1
fi
echo "ok: $ran fuzzers, $time each"
