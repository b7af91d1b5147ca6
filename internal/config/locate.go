package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// walkLeaves calls f for every scalar in a decoded JSON tree, in lexical order, with its path, its
// value, and a tree that contains only that scalar.
func walkLeaves(tree any, path string, f func(path string, value, alone any)) {
	switch t := tree.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(t)) {
			walkLeaves(t[k], joinPath(path, k), func(p string, value, alone any) { f(p, value, map[string]any{k: alone}) })
		}
	case []any:
		for i, e := range t {
			walkLeaves(e, fmt.Sprintf("%s[%d]", path, i), func(p string, value, alone any) { f(p, value, []any{alone}) })
		}
	default:
		f(path, t, t)
	}
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// newLike returns a pointer to a new zero value of the type that v points to.
func newLike(v any) any { return reflect.New(reflect.TypeOf(v).Elem()).Interface() }

// lineOf returns the line of a field in a YAML or JSON text, or 0. It finds the keys of the path one after the other,
// each below the line of its parent. In block style several of these lines may have the key. lineOf then selects the
// line with the least indentation, and the first of several such lines. In flow style it selects the first line with
// the key.
func lineOf(data []byte, path string) int {
	lines := strings.Split(string(data), "\n")
	from, found, parent := 0, 0, -1
	for key := range strings.SplitSeq(path, ".") {
		key, _, _ = strings.Cut(key, "[")
		if key == "" {
			return found
		}
		best, indent := -1, 0
		for i := from; i < len(lines); i++ {
			column, at := keyAt(lines[i], key)
			if at == 0 && i > from && parent >= 0 && endsBlock(lines[i], parent) {
				break
			}
			if at > 0 && column > parent && (best < 0 || column < indent) {
				best, indent = i, column
			}
		}
		if best < 0 {
			return found
		}
		from, found, parent = best, best+1, indent
	}
	return found
}

// keyAt returns the column of `key:` in a line. The second result is 1 if the line has this key, and 0 otherwise. The key may be quoted
// and may follow the dashes of a list.
func keyAt(line, key string) (column, ok int) {
	for _, k := range []string{key, `"` + key + `"`, "'" + key + "'"} {
		for from := 0; ; {
			i := strings.Index(line[from:], k)
			if i < 0 {
				break
			}
			i += from
			from = i + len(k)
			rest := strings.TrimLeft(line[from:], " ")
			before := strings.TrimRight(line[:i], " \t")
			if strings.HasPrefix(rest, ":") && (before == "" || strings.ContainsAny(before[len(before)-1:], "-{,[")) {
				return i, 1
			}
		}
	}
	return 0, 0
}

// endsBlock reports whether a line ends the block whose key is in the given column.
func endsBlock(line string, column int) bool {
	text := strings.TrimLeft(line, " -")
	return text != "" && text[0] != '#' && text[0] != '}' && text[0] != ']' && len(line)-len(text) <= column
}
