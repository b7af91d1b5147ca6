package update

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/internal/rollout"
)

// Trials starts trials of programs. *configure.Keeper implements it. All of its methods are about one record.
type Trials interface {
	// OfferProgram offers a program for a trial. It returns whether the program will be tried.
	OfferProgram(p trial.Program, from string, anew, despitePods bool) (id string, tried bool, err error)
	// IsRefused reports whether a program is tried only on an operator's request, because its trial has failed or an
	// operator has downgraded from its version or a newer one.
	IsRefused(version, sum string) bool
	// StagedPath returns the path of the program that waits for a trial or is on trial, or "".
	StagedPath() string
	// CheckOffer returns an error if no program can be offered now.
	CheckOffer(asked bool) error
	// AddUntriedProgram records that a program has failed before its trial. If asked is true, an operator has requested the program, and it
	// does not count as failed.
	AddUntriedProgram(p trial.Program, from string, how trial.Untried, why string, asked bool)
	// ProgramTrials returns the outcomes of programs.
	ProgramTrials() api.UpdateState
	// ConfirmPrograms sets a function that is asked right before the trial of a program that no operator and no bundle has offered.
	ConfirmPrograms(func(ctx context.Context, id string) (due bool, err error))
}

// Open returns an Updater for the program of this process, which has the given version. It removes the files of
// earlier trials. The parameter now is a function that returns the best known time, at which certificates must be
// valid. While the function wait returns true, the followed archive is not fetched, to reduce writes to the disk.
func Open(c *config.Config, version string, k Trials, now func() time.Time, wait func() bool, log *slog.Logger) (*Updater, error) {
	edge := c.Edge.Update
	keys, err := parseKeys(edge.Keys)
	if err != nil {
		return nil, err
	}
	index := IndexConfig{Source: edge.Index, Threshold: 1, Trials: k.ProgramTrials, Now: now,
		Node: rollout.Node{Name: c.Node.Name, Labels: c.Node.Labels, Arch: runtime.GOARCH}}
	if index.Keys, err = parseKeys(edge.IndexKeys); err != nil {
		return nil, err
	}
	if len(index.Keys) == 0 {
		index.Keys, index.Threshold = keys, int(edge.Threshold)
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program = strings.TrimSuffix(program, " (deleted)") // this process's file was replaced after the process started
	u := New(Config{
		Stager: Stager{Dir: filepath.Join(c.Dirs.State, "update"), Program: program, Version: version, Arch: runtime.GOARCH,
			Keys: keys, Threshold: int(edge.Threshold), Client: download.NewClient(now), Log: log},
		IsRefused: k.IsRefused, AddUntried: k.AddUntriedProgram,
		Offer: func(s *StagedProgram, from string, anew bool) (string, bool, error) {
			return k.OfferProgram(trial.Program{Version: s.Version, Sum: s.Sum, Path: s.Program, Installed: program,
				Bundled: s.Bundled}, from, anew, s.DespitePods)
		},
		StagedPath: k.StagedPath, CheckOffer: k.CheckOffer, Follow: edge.Archive, Every: edge.Every.Duration, SaveWrites: wait,
		Index: index,
	})
	if edge.Index != "" {
		k.ConfirmPrograms(u.isDue)
	}
	if len(keys) > 0 { // the result of the last trial cannot be queried yet
		u.c.RemoveOld(k.StagedPath())
	}
	return u, nil
}

func parseKeys(texts []string) (keys []release.Key, err error) {
	for _, text := range texts {
		key, err := release.ParseKey(text)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}
