#!/bin/sh
# Looks for known vulnerabilities in the packages that islet links, with govulncheck.
# It needs Go's vulnerability database. Where that cannot be reached, as on a machine
# without Internet, it says so and is content, unless VULNCHECK=required.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp)
trap 'rm -f "$out"' EXIT
code=0
go run golang.org/x/vuln/cmd/govulncheck@v1.1.4 -scan=package . >"$out" 2>&1 || code=$?
case $code in
0) echo "vulncheck: no known vulnerability in what is linked" ;;
*)
	if grep -Eq 'fetching vulnerabilities|vuln\.go\.dev' "$out" && ! grep -q '^Vulnerability #' "$out" && [ "${VULNCHECK:-}" != required ]; then
		echo "vulncheck: NOT DONE: the vulnerability database cannot be reached"
		exit 0
	fi
	cat "$out"
	exit 1
	;;
esac
