package rollout

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/islet-edge/islet/internal/release"
)

// A Node contains the facts of a node that decide about its ring.
type Node struct {
	Name   string
	Labels map[string]string // in the node's own configuration
	Arch   string            // as GOARCH
}

// A Record is what a node remembers.
type Record struct {
	Version string    // that runs
	Seen    time.Time // when the newest index was signed that the node has verified
	// IsRefused reports whether the program in an archive is tried only on an operator's request, such as after a failed trial.
	IsRefused func(version, sum string) bool
}

// A State says what a node does with the version of an index.
type State string

// The states. The metric islet_update_rollout has them as values of a label.
const (
	Due       State = "due"       // the node takes the version now
	Waiting   State = "waiting"   // the ring is closed, or the node's time has not come
	Paused    State = "paused"    // nobody takes the version now
	Installed State = "installed" // the node runs the version or a newer one
	Refused   State = "refused"   // the version has failed here, or a person has returned from it
	Outside   State = "outside"   // no ring or no archive is for the node
)

// A Decision is what a node does with the version of an index.
type Decision struct {
	State  State
	Ring   string    // empty if no ring is for the node
	Reason string    // for people
	Until  time.Time // when the state may change without another index; zero if unknown
	// Archive is the archive for the node. It is nil if there is none.
	Archive *Archive
}

// clockTolerance is the maximum time by which the signer's clock may be ahead of the node's.
const clockTolerance = time.Hour

// Remember returns the next value of Record.Seen, for an index whose signatures were verified. An index that was signed in the future is
// not remembered: otherwise a wrong clock of the signer would make the node refuse all later ones.
func (x *Index) Remember(seen, now time.Time) time.Time {
	if x.Signed.After(seen) && !x.Signed.After(now.Add(clockTolerance)) {
		return x.Signed
	}
	return seen
}

// Decide returns what a node does with the version of the index, whose signatures were verified. The result depends only on the parameters.
func (x *Index) Decide(n Node, r Record, now time.Time) Decision {
	d := Decision{State: Outside, Archive: x.archive(n.Arch)}
	i := x.ringOf(n.Name, n.Labels)
	if i >= 0 {
		d.Ring = x.Rings[i].Name
	}
	if newer, err := release.IsNewer(x.Version, r.Version); err != nil {
		d.Reason = err.Error()
		return d
	} else if !newer {
		d.State, d.Reason = Installed, "the node runs "+r.Version
		return d
	}
	switch {
	case d.Archive == nil:
		d.Reason = "the index has no archive for " + n.Arch
	case i < 0:
		d.Reason = "no ring is for this node"
	case r.IsRefused != nil && r.IsRefused(x.Version, d.Archive.SHA512):
		d.State, d.Reason = Refused, "it has failed here, or an operator has returned from it: islet update ARCHIVE tries it again"
	default:
		x.decideTime(&d, n, r, &x.Rings[i], now)
	}
	return d
}

// decideTime decides for a node that may take the version at some time.
func (x *Index) decideTime(d *Decision, n Node, r Record, ring *Ring, now time.Time) {
	d.State = Waiting
	due := ring.start().Add(jitter(n.Name, x.Version, ring.Jitter.Duration))
	switch {
	case x.Signed.Before(r.Seen):
		d.Reason = "the server sent an older index than the index of " + formatTime(r.Seen)
	case x.Signed.After(now.Add(clockTolerance)):
		d.Reason, d.Until = "the index was signed in the future: the clock of this node or of the signer is wrong", x.Signed
	case !now.Before(x.Expires):
		d.Reason = "the index has expired at " + formatTime(x.Expires)
	case x.Paused != "":
		d.State, d.Reason = Paused, x.Paused
	case ring.Opened.IsZero():
		d.Reason = "the ring is not open"
	case now.Before(due):
		d.Reason, d.Until = "the nodes of the ring are spread over time", due
	default:
		d.State, d.Reason = Due, "the ring is open"
	}
}

// ringOf returns the index of the first ring that selects the node, or -1.
func (x *Index) ringOf(name string, set map[string]string) int {
	share := int(hash("ring", x.Version, name) % 10_000)
	for i, r := range x.Rings {
		if x.selectors[i].Matches(labels.Set(set)) && (r.Percent == 0 || share < r.Percent*100) {
			return i
		}
	}
	return -1
}

// jitter returns the part of the window after which a node takes the version.
func jitter(name, version string, window time.Duration) time.Duration {
	if window <= 0 {
		return 0
	}
	return time.Duration(hash("jitter", version, name) % uint64(window))
}

// hash returns a number that is evenly distributed over the names of nodes, and that another version shuffles.
func hash(purpose, version, name string) uint64 {
	sum := sha256.Sum256([]byte("islet rollout\x00" + purpose + "\x00" + version + "\x00" + name))
	return binary.BigEndian.Uint64(sum[:])
}
