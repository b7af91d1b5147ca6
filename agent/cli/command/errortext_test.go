package command_test

import (
	"testing"

	"github.com/islet-edge/islet/agent/cli/command"
)

func TestErrorText(t *testing.T) {
	for text, want := range map[string]string{
		"pull a:1: pull a:1: no such image":  "pull a:1: no such image",
		"islet: apply: apply: bad":           "apply: bad",
		"one\x1b[2J\ntwo: two: x\n":          "one?[2J\ntwo: x",
		"apply: web.yaml: apply: not a pod":  "apply: web.yaml: apply: not a pod",
		"standard input: line 3: unknown: x": "standard input: line 3: unknown: x",
	} {
		if got := command.ErrorText(textError(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

type textError string

func (e textError) Error() string { return string(e) }
