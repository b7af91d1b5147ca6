package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/spelling"
)

// minPrefix is the minimum number of letters that a user must have typed before a word that begins with them is
// suggested.
const minPrefix = 3

// didYouMean suggests the command that is most similar to name, if it is similar enough to be a typing error.
func didYouMean(name string, list []command.Command) string {
	var names, aliases []string
	for _, c := range list {
		if !c.Hidden {
			names, aliases = append(names, c.Name), append(aliases, c.Aliases...)
		}
	}
	if best := cmp.Or(nearest(name, names), nearest(name, aliases)); best != "" {
		return fmt.Sprintf(": did you mean %q?", best)
	}
	return ": see 'islet help'"
}

// nearest returns the word that differs from name by a few letters. A short word may differ by one letter, a longer
// word by two. If there is no such word, but exactly one word begins with name, nearest returns this word. Otherwise
// it returns "".
func nearest(name string, words []string) string {
	most := 2
	if len(name) <= 5 {
		most = 1
	}
	best, least, begin := "", most+1, []string(nil)
	for _, w := range words {
		if d := spelling.Distance(name, w); d < least && len(w) > 2 {
			best, least = w, d
		}
		if len(name) >= minPrefix && strings.HasPrefix(w, name) {
			begin = append(begin, w)
		}
	}
	if best == "" && len(begin) == 1 {
		return begin[0]
	}
	return best
}

// flagAdvice returns the error of a command's flags. For an unknown flag it suggests the most similar one.
func flagAdvice(err error, flags *pflag.FlagSet) string {
	text := err.Error()
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < minPrefix {
		return text
	}
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if best := nearest(unknown.GetSpecifiedName(), names); best != "" {
		text += fmt.Sprintf(": did you mean --%s?", best)
	}
	return text
}
