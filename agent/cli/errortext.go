package cli

import (
	"slices"
	"strings"
)

// errorText returns the text of an error for a terminal. It replaces control characters, but preserves line breaks.
// If the same prefix occurs twice in succession, it removes one of them, because the agent and the command may both
// name the operation.
func errorText(err error) string {
	all := strings.Split(strings.TrimRight(err.Error(), "\n"), "\n")
	for i, line := range all {
		parts := slices.Compact(strings.Split(strings.TrimPrefix(line, "islet: "), ": "))
		all[i] = makePrintable(strings.Join(parts, ": "))
	}
	return strings.Join(all, "\n")
}
