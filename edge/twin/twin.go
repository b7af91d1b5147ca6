package twin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// MetaKey is the key in the store under which the record is stored as JSON.
const MetaKey = "twin"

// forgetRenewals is the number of renewals without the claim of another machine after which earlier claims are forgotten.
const forgetRenewals = 4

// Meta stores small values. *store.Store implements it.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMetaOrRetry(ctx context.Context, key, value string) error
}

// Config contains the dependencies and settings of a Twin.
type Config struct {
	Node  string                           // name of this node and of its Lease
	Boot  string                           // value of bootid.Read; empty if unknown
	Marks func() (serials, cards []string) // reads the hardware of this machine
	Meta  Meta
	Renew time.Duration // maximum interval at which a machine renews its Lease
	Log   *slog.Logger
}

// A record is the stored part of a Twin. It survives a reboot.
type record struct {
	Node   string `json:"node"`
	Marks  Marks  `json:"marks"`            // marks of the machine that last had the name and used this store
	Term   uint64 `json:"term,omitempty"`   // term of that machine's claim
	Boot   string `json:"boot,omitempty"`   // boot of that machine's claim
	Since  uint64 `json:"since,omitempty"`  // field since of that machine's claim
	Taking bool   `json:"taking,omitempty"` // TakeOver was called, and the claim is not written yet
	Backed string `json:"backed,omitempty"` // reason why this machine has backed off; empty if it has not
	// Restored means that the store comes from a backup of another machine, and that this machine has not had the name yet.
	Restored bool `json:"restored,omitempty"`
}

// A state describes whether this machine has the name.
type state int

const (
	owningState state = iota // the machine uses the name and has not seen another machine with it
	newcomer                 // the machine never had the name, and reads the Lease before it claims the name
	barredState              // another machine has the name
)

// A Twin decides whether this machine or another one may use the name of the node. It is safe for concurrent use.
type Twin struct {
	cfg     Config
	changed chan struct{} // capacity 1
	storing chan struct{} // a lock, of capacity 1, so that an older record never replaces a newer one

	mu    sync.Mutex
	state state
	rec   record
	now   Marks     // current marks of this machine
	claim nameClaim // claim of this boot
	// The following fields are used in the state owningState, except watch and read.
	acknowledged  bool // the Lease has contained the claim of this boot
	write         bool // the next renewal writes the claim
	clear         bool // the next renewal removes the notice of a twin
	writes        int  // number of writes of the claim since the server last acknowledged it
	earlier       int  // number of times that an earlier claim replaced this machine's claim
	quietRenewals int  // number of renewals since the last earlier claim
	otherMachine  otherMachine
	watch         watch         // used in the other states
	read          chan struct{} // closed by announceRead; nil if TakeOver does not wait
}

// otherMachine identifies a machine that has left the name to this machine.
type otherMachine struct {
	hardware, boot string
	seen           time.Time // zero if there is no other machine
}

// New reads the record and the marks of this machine. It sends no request.
func New(ctx context.Context, c Config) (*Twin, error) {
	if c.Node == "" || c.Marks == nil || c.Meta == nil || c.Renew <= 0 || c.Log == nil {
		return nil, errors.New("twin: a part of the configuration is missing")
	}
	if c.Boot == "" { // each start of the agent counts as a boot
		c.Boot = time.Now().String()
	}
	t := &Twin{cfg: c, changed: make(chan struct{}, 1), storing: make(chan struct{}, 1), now: marksOf(c.Marks())}
	text, found, err := c.Meta.Meta(ctx, MetaKey)
	if err != nil {
		return nil, fmt.Errorf("read which machine has the name of this node: %w", err)
	}
	if found {
		if err := json.Unmarshal([]byte(text), &t.rec); err != nil {
			c.Log.Error("the record of which machine has the name of this node cannot be decoded: the Lease decides", "error", err)
			t.rec, found = record{}, false
		}
	}
	t.claim = nameClaim{hardware: t.now.hardwareHash(), boot: hashOf(c.Boot), term: t.rec.Term}
	switch {
	case !found || t.rec.Node != c.Node:
		t.state, t.rec, t.claim.term = newcomer, record{Node: c.Node}, 0
	case t.rec.Restored:
		t.state = newcomer
	case t.rec.Backed != "" || t.rec.Marks.differsFrom(t.now):
		t.state = barredState
		c.Log.Warn("another machine has the name of this node: islet sends nothing to the API server until islet takeover",
			"error", t.whyNotOwner())
	case t.rec.Boot == t.claim.boot && !t.rec.Taking:
		t.acknowledged, t.claim.since = true, t.rec.Since
	}
	return t, nil
}

// Changed returns a channel that receives a value when another machine is found, or when this machine may use the name again. All calls
// return the same channel, which supports only one reader.
func (t *Twin) Changed() <-chan struct{} { return t.changed }

func (t *Twin) signalChange() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// Annotations returns the annotations of the Lease that the next renewal sets. A nil value removes the annotation. A nil map changes no
// annotation. A Lease that the renewal creates also gets the claim of this machine.
func (t *Twin) Annotations(created bool) map[string]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != owningState || !t.write && !t.clear && !created {
		return nil
	}
	out := map[string]any{}
	if t.write || created {
		out[keys.LeaseClaim] = t.claim.String()
	}
	if t.clear && !created {
		out[keys.LeaseTwin] = nil
	}
	return out
}

// EvaluateLease evaluates the Lease in the server's answer to a renewal. It returns true if the Lease must be renewed again immediately, to
// write the claim.
func (t *Twin) EvaluateLease(ctx context.Context, m *metav1.ObjectMeta) (again bool) {
	t.mu.Lock()
	if t.state != owningState {
		t.mu.Unlock()
		return false
	}
	t.clear = false
	if n := m.Annotations[keys.LeaseTwin]; n != "" {
		t.clear = true
		if p, ok := parseNotice(n); ok && p.boot != t.claim.boot {
			t.recordTwin(p)
		}
	}
	text, wasAcknowledged := m.Annotations[keys.LeaseClaim], t.acknowledged
	found, ok := parseNameClaim(text)
	foreign := text != t.claim.String()
	keep := false
	switch {
	case !foreign:
		keep = !wasAcknowledged || t.rec.Taking || t.rec.Boot != t.claim.boot
		t.acknowledged, t.write, t.writes = true, false, 0
		t.quietRenewals++
		if t.quietRenewals >= forgetRenewals {
			t.earlier = 0
		}
	case !ok || !wasAcknowledged:
		t.judgeEarlier(found, ok, m.ResourceVersion)
	default:
		t.judgeLater(found)
	}
	again = foreign && t.state == owningState && t.writes < 2
	if foreign {
		t.writes++
	}
	if keep {
		now := t.readMarks()
		if keep = t.state == owningState; keep {
			t.recordOwner(now)
		}
	}
	store := keep || t.state == barredState
	t.mu.Unlock()
	if store {
		t.storeInTime(ctx)
	}
	return again
}

// storeWait is the maximum time for which a renewal of the Lease waits for the disk.
const storeWait = time.Second

// storeInTime stores the record. After storeWait, or at the end of ctx, it returns while the write continues, because the next renewal must
// not wait for a slow disk. Until the record is stored, the Lease has the same information: a restarted agent reads the claim there, and
// decides again.
func (t *Twin) storeInTime(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		t.storeRecord(context.WithoutCancel(ctx))
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(storeWait):
	case <-ctx.Done():
	}
}

// judgeEarlier evaluates the claim of an earlier boot, if the Lease contains one.
func (t *Twin) judgeEarlier(found nameClaim, ok bool, version string) {
	switch {
	case ok && found.term > t.claim.term && !t.rec.Taking:
		t.backOffByTerm(found)
		return
	case ok && found.term >= t.claim.term && t.rec.Taking:
		t.claim.term = found.term + 1
	}
	t.claim.since = versionOf(version)
	t.write = true
}

// judgeLater evaluates the claim of a running machine that has replaced the claim of this boot.
func (t *Twin) judgeLater(found nameClaim) {
	t.quietRenewals, t.write = 0, true
	if !found.hasPriorityOver(t.claim) {
		t.recordTwin(otherMachine{hardware: found.hardware, boot: found.boot})
		return
	}
	switch t.earlier++; {
	case found.term > t.claim.term:
		t.backOffByTerm(found)
	case t.earlier >= 2:
		t.backOff(fmt.Sprintf("the machine with hardware %s had the name of this node before, and renews its Lease", found.hardware))
	}
}

// recordTwin records a machine that has backed off or will back off.
func (t *Twin) recordTwin(o otherMachine) {
	o.seen = time.Now()
	news := t.otherMachine.boot != o.boot || !t.twinSeen()
	t.otherMachine = o
	if news {
		t.cfg.Log.Warn("another machine uses the name of this node; it backs off", "node", t.cfg.Node, "hardware", o.hardware)
		t.signalChange()
	}
}

func (t *Twin) backOffByTerm(found nameClaim) {
	t.backOff(fmt.Sprintf("the machine with hardware %s took over the name of this node by islet takeover or islet restore",
		found.hardware))
}

// backOff records that another machine has the name.
func (t *Twin) backOff(why string) {
	t.state, t.write, t.rec.Backed, t.watch = barredState, false, why, watch{}
	t.cfg.Log.Warn("another machine has the name of this node: islet sends nothing to the API server until islet takeover", "error", why)
	t.signalChange()
}

// recordOwner records that this machine has the name, with the given marks.
func (t *Twin) recordOwner(now Marks) {
	t.now = now
	t.rec = record{Node: t.cfg.Node, Marks: t.rec.Marks.add(t.now), Term: t.claim.term, Boot: t.claim.boot, Since: t.claim.since}
}

// readMarks reads the marks of this machine. The caller must hold mu. readMarks releases mu during the read, because the read may take long
// and other goroutines need the state.
func (t *Twin) readMarks() Marks {
	t.mu.Unlock()
	defer t.mu.Lock()
	return marksOf(t.cfg.Marks())
}

// storeRecord stores the newest record. If ctx ends while an earlier write has not ended, or the agent ends before the store has repeated a
// failed write, this machine decides again at its next boot.
func (t *Twin) storeRecord(ctx context.Context) {
	var err error
	select {
	case t.storing <- struct{}{}:
		t.mu.Lock()
		rec := t.rec
		t.mu.Unlock()
		var data []byte
		if data, err = json.Marshal(rec); err == nil {
			err = t.cfg.Meta.SetMetaOrRetry(ctx, MetaKey, string(data))
		}
		<-t.storing
	case <-ctx.Done():
		err = fmt.Errorf("an earlier write has not ended: %w", ctx.Err())
	}
	if err != nil {
		t.cfg.Log.Error("the record of which machine has the name of this node is not stored yet: until then the next boot decides again",
			"error", err)
	}
}

// twinTTL is the time for which the other machine is reported after its last notice. The other machine writes a notice at least every
// maxLookInterval.
const twinTTL = 4 * maxLookInterval

func (t *Twin) twinSeen() bool {
	return !t.otherMachine.seen.IsZero() && time.Since(t.otherMachine.seen) < twinTTL
}

// Report returns a message for the user while another machine uses this machine's name, or "" if no such machine is known.
func (t *Twin) Report() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != owningState || !t.twinSeen() {
		return ""
	}
	return fmt.Sprintf("another machine (hardware %s) runs with the name of this node and has backed off: "+
		"give it another name, or a state directory of its own", t.otherMachine.hardware)
}

// Conditions returns the condition DuplicateNode while another machine uses the name, and no condition otherwise.
func (t *Twin) Conditions() []v1.NodeCondition {
	if t == nil {
		return nil
	}
	text := t.Report()
	if text == "" {
		return nil
	}
	return []v1.NodeCondition{{Type: keys.DuplicateCondition, Status: v1.ConditionTrue, Reason: "AnotherMachine", Message: text}}
}
