package update

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/internal/rollout"
)

const (
	// seenFile contains the time at which the newest index was signed that the node has verified. It is in the directory of the Stager.
	seenFile = "index.json"
	// maxProblem is the maximum length of a problem in the status, in bytes.
	maxProblem = 1 << 10
)

// IndexConfig describes a followed index.
type IndexConfig struct {
	Source    string // its absolute path or https URL, or ""
	Keys      []release.Key
	Threshold int // number of keys in Keys that must have signed it
	Node      rollout.Node
	Trials    func() api.UpdateState // outcomes of programs; may be nil
	Now       func() time.Time       // the best known time
}

// An indexed is the archive that an index names.
type indexed struct {
	name    string // of the archive, as for newSource
	version string
	sum     string
}

// check returns an error if a release does not belong to the archive. The indexed may be nil.
func (i *indexed) check(r *release.Release) error {
	if i != nil && (r.Version != i.version || hex.EncodeToString(r.SHA512[:]) != i.sum) {
		return fmt.Errorf("version %s: it is not the archive of version %s that the index names", r.Version, i.version)
	}
	return nil
}

// A heldError means that the node does not take the version of an index now.
type heldError struct{ *rollout.Decision }

func (e heldError) Error() string { return e.Reason }

// wait returns the time until the next look at the index.
func (e heldError) wait(now time.Time, every time.Duration) time.Duration {
	if until := e.Until.Sub(now); !e.Until.IsZero() && until < every {
		return max(until, time.Second)
	}
	return every
}

// readIndex reads the followed index. It returns the archive that the node takes now, or nil if the node takes nothing from this index. If
// the node must wait, the error is a heldError.
func (u *Updater) readIndex(ctx context.Context) (*indexed, error) {
	c := &u.c.Index
	if err := u.checkOffer(false); errors.Is(err, trial.ErrUnknownKeys) { // a removed key must not sign the newest index
		return nil, err
	}
	src, err := newSource(c.Source, u.c.Client)
	if err != nil {
		return nil, err
	}
	text, err := src.readText(ctx, src.name, rollout.MaxText)
	if err != nil {
		return nil, err
	}
	x, err := rollout.Parse(text)
	if err == nil {
		err = x.Verify(c.Keys, c.Threshold, "the node's keys")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", src, err)
	}
	u.seenLock.Lock() // two looks at the same time must not store the older one
	defer u.seenLock.Unlock()
	seen, err := u.loadSeen()
	if err != nil {
		return nil, err
	}
	now := c.Now()
	d := x.Decide(c.Node, rollout.Record{Version: u.c.Version, Seen: seen, IsRefused: u.refused(false)}, now)
	if next := x.Remember(seen, now); !next.Equal(seen) {
		if err := u.saveSeen(next); err != nil { // before the node acts
			return nil, err
		}
	}
	u.setDecision(x, d)
	switch d.State {
	case rollout.Due:
		name, err := sibling(c.Source, d.Archive.File)
		return &indexed{name, x.Version, d.Archive.SHA512}, err
	case rollout.Waiting, rollout.Paused:
		return nil, heldError{&d}
	}
	return nil, nil
}

// isDue reports whether the node takes the program with this ID now. It reads the followed index, because a pause may have begun since the
// program was chosen. The error says why the index cannot be read.
func (u *Updater) isDue(ctx context.Context, id string) (bool, error) {
	want, err := u.readIndex(ctx)
	u.setChecked(err)
	if errors.As(err, new(heldError)) {
		err = nil
	}
	return err == nil && want != nil && release.ProgramID(want.version, want.sum) == id, err
}

// sibling returns the name of a file in the same directory. The query of a URL stays.
func sibling(name, file string) (string, error) {
	if filepath.IsAbs(name) {
		return filepath.Join(filepath.Dir(name), file), nil
	}
	at, err := url.Parse(name)
	if err != nil {
		return "", errors.New("the index has a URL that is not valid")
	}
	at.Path, at.RawPath = path.Join(path.Dir("/"+at.Path), file), ""
	return at.String(), nil
}

// A seen is the content of seenFile.
type seen struct {
	Signed time.Time `json:"signed"`
}

// loadSeen returns the time at which the newest index was signed that the node has verified. The time is zero if there is none.
func (u *Updater) loadSeen() (time.Time, error) {
	name := filepath.Join(u.c.Dir, seenFile)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	var s seen
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w: remove it if it is damaged", name, err)
	}
	return s.Signed, nil
}

func (u *Updater) saveSeen(t time.Time) error {
	text, err := json.Marshal(seen{t})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(u.c.Dir, 0o700); err != nil {
		return err
	}
	return durable.Write(filepath.Join(u.c.Dir, seenFile), text, 0o600)
}

func (u *Updater) setDecision(x *rollout.Index, d rollout.Decision) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status.Offered, u.status.Ring, u.status.State, u.status.Reason = x.Version, d.Ring, string(d.State), d.Reason
	u.status.Until = d.Until
}

// setChecked records the result of a check of the followed archive or index.
func (u *Updater) setChecked(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case errors.Is(err, errSpared):
		u.status.Problem = cmp.Or(u.status.Problem, err.Error())
		return
	case errors.As(err, new(busyError)):
		return
	case err == nil, errors.As(err, new(heldError)), errors.Is(err, ErrOlder), errors.Is(err, ErrFailed):
		u.status.Problem = ""
	default:
		u.status.Problem = printable.Cut(err.Error(), maxProblem)
	}
	if u.c.Index.Now != nil {
		u.status.Checked = u.c.Index.Now().UTC().Truncate(time.Second)
	}
}

// addUntried records that a program has failed before its trial.
func (u *Updater) addUntried(e untriedError, from string, anew bool) {
	if u.c.AddUntried != nil {
		u.c.AddUntried(trial.Program{Version: e.version, Sum: e.sum}, from, e.how, printable.Cut(e.Error(), maxProblem), anew)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	close(u.changed)
	u.changed = make(chan struct{})
}

// Status returns what the node follows, and what it does with the version there.
func (u *Updater) Status() api.UpdateStatus {
	u.mu.Lock()
	out := u.status
	u.mu.Unlock()
	out.Version = u.c.Version
	if u.c.Follow != "" {
		out.Archive = redact(u.c.Follow)
	}
	if u.c.Index.Source != "" {
		out.Index = redact(u.c.Index.Source)
	}
	out.Report = u.state()
	return out
}

// state returns the outcomes of versions on this node.
func (u *Updater) state() (out api.UpdateState) {
	c := &u.c.Index
	if c.Trials != nil {
		out = c.Trials()
	}
	out.Arch, out.Labels = c.Node.Arch, c.Node.Labels
	return out
}

// Report returns the outcomes of versions for the state document of the node, or nil if the node follows no index. The channel is closed
// when the outcomes may have changed. A trial also ends with a restart of the agent, which calls Report again.
func (u *Updater) Report() (*api.UpdateState, <-chan struct{}) {
	if u.c.Index.Source == "" {
		return nil, nil
	}
	u.mu.Lock()
	changed := u.changed
	u.mu.Unlock()
	s := u.state()
	return &s, changed
}

var rolloutInfo = prometheus.NewDesc("islet_update_rollout",
	"What the node does with the version of the index that it follows. The value is always 1.",
	[]string{"version", "ring", "state"}, nil)

// Collectors returns the metric of a followed index. It is absent until an index was read.
func (u *Updater) Collectors() []prometheus.Collector { return []prometheus.Collector{collector{u}} }

type collector struct{ u *Updater }

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- rolloutInfo
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	c.u.mu.Lock()
	version, ring, state := c.u.status.Offered, c.u.status.Ring, c.u.status.State
	c.u.mu.Unlock()
	if state != "" {
		ch <- prometheus.MustNewConstMetric(rolloutInfo, prometheus.GaugeValue, 1, version, ring, state)
	}
}
