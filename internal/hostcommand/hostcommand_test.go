package hostcommand_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/hostcommand"
)

// TestTake checks which arguments are flags of the command, and that the others stay in their order.
func TestTake(t *testing.T) {
	for line, want := range map[string]string{
		"":                                  "false  []",
		"--on --to=a --state-dir=/x f":      "true a [--state-dir=/x f]",
		"f --to a --state-dir /x --on":      "true a [f --state-dir /x]",
		"--to=a=b --to=":                    "false  []",
		"--to --on":                         "false --on []",
		"--on=true --too=a -- - -to=a --no": "false  [--on=true --too=a -- - -to=a --no]",
		"--to":                              "error",
		"--to=bad":                          "error",
	} {
		var f hostcommand.Flags
		var on, no bool
		var to string
		f.Switch("--on", &on)
		f.Value("--to", func(s string) error {
			to = s
			if s == "bad" {
				return errors.New("it is bad")
			}
			return nil
		})
		rest, err := f.Take(strings.Fields(line))
		got := fmt.Sprint(on, " ", to, " ", rest)
		if err != nil {
			got = "error"
		}
		if got != want || no || err != nil && hostcommand.CodeOf(err) != hostcommand.ExitUsage {
			t.Errorf("%q: %s (%v), want %s", line, got, err, want)
		}
	}
	if rest, err := new(hostcommand.Flags).Take([]string{"--a", "b"}); err != nil || !slices.Equal(rest, []string{"--a", "b"}) {
		t.Error(rest, err)
	}
}

// TestReport checks the exit code of each kind of error, and that an error is printed once, if it has a text.
func TestReport(t *testing.T) {
	failed := errors.New("no disk")
	for _, c := range []struct {
		err  error
		code int
		text string
	}{
		{nil, hostcommand.ExitOK, ""},
		{failed, hostcommand.ExitFailed, "islet: key: no disk\n"},
		{hostcommand.Usage(failed), hostcommand.ExitUsage, "islet: key: no disk\n"},
		{fmt.Errorf("flags: %w", hostcommand.Usage(failed)), hostcommand.ExitUsage, "islet: key: flags: no disk\n"},
		{hostcommand.ExitError{Code: 75}, 75, ""},
		{hostcommand.ExitError{75, failed}, 75, "islet: key: no disk\n"},
	} {
		var out bytes.Buffer
		if code := hostcommand.Report(&out, "key", c.err); code != c.code || out.String() != c.text {
			t.Errorf("%v: %d %q, want %d %q", c.err, code, out.String(), c.code, c.text)
		}
	}
}
