package pattern

import (
	"regexp"
	"sync"
)

// New returns a function that compiles the expression at its first call and returns the same result at each call. The function panics if
// the expression is invalid.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
