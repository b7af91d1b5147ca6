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

// metaTwin is the key under which the store has the record, as JSON.
const metaTwin = "twin"

// rounds of renewals without a foreign claim end a suspicion.
const rounds = 4

// Meta keeps small values. *store.Store is one.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Config is what a Twin needs.
type Config struct {
	Node  string                           // name of this node, and so of its Lease
	Boot  string                           // bootid.Read; empty: not known
	Marks func() (serials, cards []string) // of this machine
	Meta  Meta                             // of this node
	Renew time.Duration                    // how long a living machine leaves its Lease alone at most
	Log   *slog.Logger
}

// A record is what outlives the boot.
type record struct {
	Node   string `json:"node"`
	Marks  Marks  `json:"marks"`            // of the machine that last had the name with this store
	Term   uint64 `json:"term,omitempty"`   // of its claim
	Boot   string `json:"boot,omitempty"`   // of its claim
	Since  uint64 `json:"since,omitempty"`  // of its claim
	Taking bool   `json:"taking,omitempty"` // a person has this machine take the name over
	Backed string `json:"backed,omitempty"` // why this machine backed off; empty: it did not
}

// A state is how this machine stands with the name.
type state int

const (
	standing state = iota // it has the name, as far as it knows
	newcomer              // it never had the name: it looks at the Lease first
	barred                // another machine has it
)

// A Twin is safe for concurrent use.
type Twin struct {
	cfg     Config
	changed chan struct{} // capacity 1

	mu    sync.Mutex
	state state
	rec   record
	now   Marks // of this machine
	claim claim // of this boot
	// These are of the machine that stands.
	acknowledged bool // the Lease had the claim of this boot
	write        bool // the next renewal is to write the claim
	clear        bool // the next renewal is to remove the notice of a twin
	writes       int  // of the claim, since it was last acknowledged
	earlier      int  // how often the claim of an earlier machine came back
	quiet        int  // renewals since then
	other        other
	watch        watch // of a machine that does not
}

// other is the twin of a machine that stands.
type other struct {
	hardware, boot string
	seen           time.Time // zero: there is none
}

// New reads the record and the marks of this machine. It makes no request.
func New(ctx context.Context, c Config) (*Twin, error) {
	if c.Node == "" || c.Marks == nil || c.Meta == nil || c.Renew <= 0 || c.Log == nil {
		return nil, errors.New("twin: a part of the configuration is missing")
	}
	if c.Boot == "" { // then each start of the agent counts as a boot
		c.Boot = time.Now().String()
	}
	t := &Twin{cfg: c, changed: make(chan struct{}, 1), now: marksOf(c.Marks())}
	text, found, err := c.Meta.Meta(ctx, metaTwin)
	if err != nil {
		return nil, fmt.Errorf("read which machine has the name of this node: %w", err)
	}
	if found {
		if err := json.Unmarshal([]byte(text), &t.rec); err != nil {
			c.Log.Error("the record of which machine has the name of this node cannot be read: the Lease is asked", "error", err)
			t.rec, found = record{}, false
		}
	}
	t.claim = claim{hardware: t.now.hardware(), boot: hashOf(c.Boot), term: t.rec.Term}
	switch {
	case !found || t.rec.Node != c.Node:
		t.state, t.rec, t.claim.term = newcomer, record{Node: c.Node}, 0
	case t.rec.Backed != "" || t.rec.Marks.another(t.now):
		t.state = barred
		c.Log.Warn("another machine has the name of this node: nothing is told to the API server until islet takeover", "error", t.why())
	case t.rec.Boot == t.claim.boot && !t.rec.Taking:
		t.acknowledged, t.claim.since = true, t.rec.Since
	}
	return t, nil
}

// Changed signals that another machine was found, or that this one may use the name now. There is
// one channel, for one reader.
func (t *Twin) Changed() <-chan struct{} { return t.changed }

func (t *Twin) signal() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// Annotations returns the annotations of the Lease that the next renewal sets, or removes where the
// value is nil. A nil map changes none. created says that the renewal creates the Lease.
func (t *Twin) Annotations(created bool) map[string]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != standing || !t.write && !t.clear && !created {
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

// Renewed takes the Lease as the server has it after a renewal. It reports whether the Lease is
// to be renewed again at once, to write the claim.
func (t *Twin) Renewed(ctx context.Context, m *metav1.ObjectMeta) (again bool) {
	t.mu.Lock()
	if t.state != standing {
		t.mu.Unlock()
		return false
	}
	t.clear = false
	if n := m.Annotations[keys.LeaseTwin]; n != "" {
		t.clear = true
		if p, ok := parseNotice(n); ok && p.boot != t.claim.boot {
			t.see(p)
		}
	}
	text, had := m.Annotations[keys.LeaseClaim], t.acknowledged
	found, ok := parseClaim(text)
	foreign := text != t.claim.String()
	keep := false
	switch {
	case !foreign:
		keep = !had || t.rec.Taking || t.rec.Boot != t.claim.boot
		t.acknowledged, t.write, t.writes = true, false, 0
		if t.quiet++; t.quiet >= rounds {
			t.earlier = 0
		}
	case !ok || !had:
		t.first(found, ok, m.ResourceVersion)
	default:
		t.meet(found)
	}
	again = foreign && t.state == standing && t.writes < 2
	if foreign {
		t.writes++
	}
	if keep {
		t.settle()
	}
	rec, store := t.rec, keep || t.state == barred
	t.mu.Unlock()
	if store {
		t.keep(ctx, rec)
	}
	return again
}

// first judges the claim of a boot before this one; ok: there is one.
func (t *Twin) first(found claim, ok bool, version string) {
	switch {
	case ok && found.term > t.claim.term && !t.rec.Taking:
		t.barByTerm(found)
		return
	case ok && found.term >= t.claim.term && t.rec.Taking:
		t.claim.term = found.term + 1
	}
	t.claim.since = versionOf(version)
	t.write = true
}

// meet judges the claim of another machine that lives: it came after this boot's own.
func (t *Twin) meet(found claim) {
	t.quiet, t.write = 0, true
	if !found.before(t.claim) {
		t.see(other{hardware: found.hardware, boot: found.boot})
		return
	}
	switch t.earlier++; {
	case found.term > t.claim.term:
		t.barByTerm(found)
	case t.earlier >= 2:
		t.bar(fmt.Sprintf("the machine with hardware %s had the name of this node before, and renews its Lease", found.hardware))
	}
}

// see notes another machine that has backed off, or is about to.
func (t *Twin) see(o other) {
	o.seen = time.Now()
	news := t.other.boot != o.boot || !t.there()
	t.other = o
	if news {
		t.cfg.Log.Warn("another machine uses the name of this node; it backs off", "node", t.cfg.Node, "hardware", o.hardware)
		t.signal()
	}
}

func (t *Twin) barByTerm(found claim) {
	t.bar(fmt.Sprintf("the machine with hardware %s took the name of this node over by islet takeover", found.hardware))
}

// bar has this machine back off.
func (t *Twin) bar(why string) {
	t.state, t.write, t.rec.Backed, t.watch = barred, false, why, watch{}
	t.cfg.Log.Warn("another machine has the name of this node: nothing is told to the API server until islet takeover", "error", why)
	t.signal()
}

// settle has the record say that this machine has the name. Its network cards are there by now.
func (t *Twin) settle() {
	t.now = marksOf(t.cfg.Marks())
	t.rec = record{Node: t.cfg.Node, Marks: t.rec.Marks.add(t.now), Term: t.claim.term, Boot: t.claim.boot, Since: t.claim.since}
}

// keep stores a record. A disk that takes no writes leaves the decision to the next boot.
func (t *Twin) keep(ctx context.Context, rec record) {
	data, err := json.Marshal(rec)
	if err == nil {
		err = t.cfg.Meta.SetMeta(ctx, metaTwin, string(data))
	}
	if err != nil {
		t.cfg.Log.Error("which machine has the name of this node is not stored: the next boot decides anew", "error", err)
	}
}

// lasts is how long a twin counts as there after its last sign: it gives one each longestLook.
const lasts = 4 * longestLook

func (t *Twin) there() bool { return !t.other.seen.IsZero() && time.Since(t.other.seen) < lasts }

// Report returns what a person should know while another machine uses the name and this one has
// it; empty: nothing is known of another one.
func (t *Twin) Report() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != standing || !t.there() {
		return ""
	}
	return fmt.Sprintf("another machine (hardware %s) runs with the name of this node and has backed off: give it another name, or a state directory of its own", t.other.hardware)
}

// Conditions are those of the Node: one, while another machine uses its name.
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
