package bundle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/signed"
)

// setupCollect sets up islet bundle collect.
func setupCollect(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	list := flags.String("keys", "", "a file with the public keys of nodes; a state of another key is an error")
	return func(_ context.Context, args []string) error {
		if len(args) == 0 {
			return command.Usage("bundle collect needs files that nodes have written: islet bundle collect islet-*.json")
		}
		var known []signed.Key
		if *list != "" {
			var err error
			if known, err = readKeys(*list); err != nil {
				return missingFile(*list, err)
			}
		}
		out := terminal.Table{}
		out.AddRow("NODE", "BUNDLE", "RESULT", "READY", "FREE", "WRITTEN/DAY", "ISLET", "TIME", "KEY", "REASON")
		var errs []error
		for _, file := range args {
			s, key, err := readState(file)
			if err == nil && *list != "" && !slices.ContainsFunc(known, func(k signed.Key) bool { return k.ID() == key.ID() }) {
				err = fmt.Errorf("it is signed by the key %s, which is not in %s", key.ID(), *list)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", file, err))
				continue
			}
			out.AddRow(stateRow(s, key)...)
		}
		if len(errs) < len(args) {
			out.Print(t.Out)
		}
		return errors.Join(errs...)
	}
}

// readState reads the state of a node and verifies its signature.
func readState(file string) (*api.BundleState, signed.Key, error) {
	text, err := regular.Read(file, bundle.MaxState)
	if err != nil {
		return nil, nil, missingFile(file, err)
	}
	var document bundle.SignedState
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, nil, fmt.Errorf("it is not the state of a node: %w", err)
	}
	key, err := document.Verify()
	if err != nil {
		return nil, nil, err
	}
	s := &api.BundleState{}
	if err := json.Unmarshal(document.State, s); err != nil {
		return nil, nil, fmt.Errorf("it is not the state of a node: %w", err)
	}
	return s, key, nil
}

// stateRow returns the cells of a node.
func stateRow(s *api.BundleState, key signed.Key) []string {
	current, result, why, written := "none", "", "", "unknown"
	if b := cmp.Or(s.Trial, s.Current); b != nil {
		current = fmt.Sprintf("%s %d", b.Name, b.Number)
	}
	switch m, last := s.Medium, s.Last; {
	case s.Trial != nil:
		result = "on trial"
	case m != nil && (last == nil || m.Result != "nothing" && m.Time.After(last.Time)): // a stick without a bundle only collects
		result, why = m.Result, m.Why
	case last != nil:
		result, why = last.Result, last.Why
	}
	if s.Source != nil && why == "" {
		why = s.Source.Problem
	}
	ready := 0
	for _, p := range s.Pods {
		if p.Ready {
			ready++
		} else if why == "" {
			why = p.Name + ": " + p.Reason
		}
	}
	if s.Wear != nil {
		written = api.FormatSize(s.Wear.Mean.Device)
	}
	row := []string{s.Node, current, result, fmt.Sprintf("%d/%d", ready, len(s.Pods)), api.FormatSize(s.Disk.Free), written,
		s.Versions.Islet, s.Time.Format(time.RFC3339), key.ID(), strings.ReplaceAll(why, "\n", " ")}
	for i := range row {
		row[i] = cmp.Or(row[i], "-")
	}
	return row
}
