package command

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/islet-edge/islet/internal/printable"
)

// ErrorText returns the text of an error for a terminal. It replaces control characters, but preserves line breaks.
// If the same prefix occurs twice in succession, it removes one of them, because the agent and the command may both
// name the operation.
func ErrorText(err error) string {
	all := strings.Split(strings.TrimRight(err.Error(), "\n"), "\n")
	for i, line := range all {
		parts := slices.Compact(strings.Split(strings.TrimPrefix(line, "islet: "), ": "))
		all[i] = printable.Line(strings.Join(parts, ": "))
	}
	return strings.Join(all, "\n")
}

// PrintError prints an error. It prints each of several joined errors on its own line.
func PrintError(w io.Writer, err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range several.Unwrap() {
			PrintError(w, err)
		}
		return
	}
	fmt.Fprintf(w, "islet: %s\n", ErrorText(err))
}
