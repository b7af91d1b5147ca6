package sealkey

import (
	"errors"
	"fmt"
	"strings"

	"github.com/islet-edge/islet/edge/keyfile"
)

// printStatus prints the state of the key. It returns an error if the key does not open, or if a plain copy of a sealed key exists.
func (env Env) printStatus(s keyfile.Status, place keyfile.Place) error {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(env.Stdout, "%-8s %s\n", name+":", fmt.Sprintf(format, args...))
	}
	line("key", "%s", s.Path)
	switch {
	case !s.Exists:
		line("state", "none yet: the agent makes a plain key when it stores the first confidential row. "+
			"islet key seal makes a sealed one while no agent runs")
		return nil
	case !s.Sealed && s.Problem == nil:
		line("state", "plain: everybody who has the disk can read it. islet key seal seals it to a TPM")
		return nil
	case !s.Sealed:
		return s.Problem
	}
	line("state", "sealed to the TPM %s", place.TPM)
	pcrs := "none: each system that this machine boots opens it"
	if len(s.PCRs) > 0 {
		pcrs = strings.Trim(strings.ReplaceAll(fmt.Sprint(s.PCRs), " ", ","), "[]")
	}
	line("PCRs", "%s", pcrs)
	switch {
	case s.PolicyKey != "":
		line("policy", "signed by the key %s, in %s", s.PolicyKey, place.Policies)
	default:
		line("policy", "signed by this node when it sealed the key")
	}
	if s.Policy != "" {
		line("now", "%s", s.Policy)
	}
	if s.Problem == nil {
		line("opens", "yes")
	} else {
		line("opens", "no")
	}
	var copies error
	if len(s.Copies) > 0 {
		copies = fmt.Errorf("plain copies of the key are left, until the agent starts again or islet key seal is repeated: %s",
			strings.Join(s.Copies, " "))
	}
	return errors.Join(s.Problem, copies)
}
