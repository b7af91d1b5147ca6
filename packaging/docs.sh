#!/bin/sh
# Copies the documents of docs/ to a directory, for the archive. A link that leaves docs/ becomes an
# address of the project, because the file that it leads to is not in the archive. So does a picture.
#   docs.sh DIR
set -eu
docs=$(dirname "$0")/../docs
project=https://github.com/islet-edge/islet/blob/main
mkdir -p "$1/decisions" "$1/examples"
cp "$docs"/decisions/*.md "$1/decisions/"
cp -r "$docs"/examples/. "$1/examples"
for page in "$docs"/*.md; do
	sed -e "s|](\.\./|]($project/|g" -e "s|](pictures/|]($project/docs/pictures/|g" "$page" >"$1/${page##*/}"
done
