package update

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/release"
)

// A Keeper tries programs. *configure.Keeper is one.
type Keeper interface {
	// OfferProgram takes one to be tried. Tried: it will be.
	OfferProgram(p trial.Program, from string, anew, despitePods bool) (id string, tried bool, err error)
	// Refused reports whether one has failed, or was left, and is tried again for a person only.
	Refused(version, sum string) bool
	// Staged is the path of one that is to be tried, or is on trial; empty: there is none.
	Staged() string
	// Busy says why none can be offered now.
	Busy(asked bool) error
}

// Open makes an Updater of this process' own program, of a version. Now is the time as it is
// best known. It removes what a trial before left behind. Wait says that what is only followed waits, to spare the disk.
func Open(c *config.Config, version string, k Keeper, now func() time.Time, wait func() bool, log *slog.Logger) (*Updater, error) {
	edge := c.Edge.Update
	var keys []release.Key
	for _, text := range edge.Keys {
		key, err := release.ParseKey(text)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program = strings.TrimSuffix(program, " (deleted)") // replaced since this process was started
	u := New(Config{
		Stager: Stager{Dir: filepath.Join(c.Dirs.State, "update"), Program: program, Version: version, Arch: runtime.GOARCH,
			Keys: keys, Threshold: int(edge.Threshold), Client: newClient(now), Log: log},
		Refused: k.Refused,
		Offer: func(s *Staged, from string, anew bool) (string, bool, error) {
			return k.OfferProgram(trial.Program{Version: s.Version, Sum: s.Sum, Path: s.Program, Installed: program}, from, anew, s.DespitePods)
		},
		Kept: k.Staged, Busy: k.Busy, Follow: edge.Archive, Every: edge.Every.Duration, Wait: wait,
	})
	if len(keys) > 0 { // before anybody can ask how the trial ended that this start comes after
		u.c.Tidy(k.Staged())
	}
	return u, nil
}
