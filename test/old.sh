#!/usr/bin/env bash
# Builds the program of an earlier commit, for tests of going from it to this one and back.
#
#   test/old.sh COMMIT FILE
#
# FILE is left as it is if it is there. Where the history does not have the commit, such as in a
# shallow clone, nothing is built.
set -euo pipefail
commit=$1 file=$2
cd "$(dirname "$0")/.."
[ -e "$file" ] && exit 0
if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
	echo "this checkout does not have commit $commit: tests with its program are left out" >&2
	exit 0
fi
echo "building the program of commit $commit, which this one's has to go back to"
mkdir -p "$(dirname "$file")"
source=$(mktemp -d "$(dirname "$file")/source.XXXXXX")
trap 'rm -rf "$source"' EXIT
git archive "$commit" | tar -x -C "$source"
make -s -C "$source" bin/islet VERSION=0.1.0
mv "$source/bin/islet" "$file"
