package rollout

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/islet-edge/islet/internal/pattern"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/internal/signed"
)

// Limits of a plan.
const (
	// MaxText is the maximum size of an index in bytes, with its signatures.
	MaxText     = signed.MaxText
	maxRings    = 16
	maxArchives = 8
	maxSelector = 512
	maxPaused   = 512
	maxPeriod   = 366 * 24 * time.Hour
	minValid    = time.Hour
	maxNodes    = 1_000_000
)

// A Plan describes the rollout of one version.
type Plan struct {
	Version  string    `json:"version"`
	Archives []Archive `json:"archives"`
	// Valid is the period after which an index expires that is not signed again.
	Valid metav1.Duration `json:"valid"`
	// Paused is the reason why no node may take the version now. It is empty while the rollout is under way.
	Paused string `json:"paused,omitempty"`
	Rings  []Ring `json:"rings"` // a node belongs to the first one that selects it
}

// An Archive is the archive of the version for an architecture.
type Archive struct {
	Arch   string `json:"arch"` // as GOARCH
	File   string `json:"file"` // in the directory of the index
	SHA512 string `json:"sha512"`
}

// A Ring is a part of the nodes.
type Ring struct {
	Name string `json:"name"`
	// Selector selects nodes by their labels, as kubectl's -l. An empty one selects all nodes.
	Selector string `json:"selector,omitempty"`
	// Percent selects this part of the nodes, by a hash of the name and the version. 0 selects all nodes.
	Percent int `json:"percent,omitempty"`
	// NotBefore is the earliest time at which a node of the ring takes the version.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Jitter is the period over which the nodes of the ring are spread.
	Jitter metav1.Duration `json:"jitter,omitzero"`
	// Soak is the time that must pass after the ring's last node may have taken the version, before the next ring opens.
	Soak metav1.Duration `json:"soak,omitzero"`
	// MinSucceeded is the number of nodes of the ring that must run the version before the next ring opens.
	MinSucceeded int `json:"minSucceeded"`
	// MaxFailed is the number of nodes of the ring that may fail. One more pauses the rollout.
	MaxFailed int `json:"maxFailed"`

	// Advance changes only the following fields.

	// Opened is the time at which the ring was opened. A ring without it is closed.
	Opened time.Time `json:"opened,omitzero"`
	// Failed is the highest number of nodes of the ring that have failed. It never decreases.
	Failed int `json:"failed,omitempty"`
}

// start returns the time at which the first node of an open ring may take the version.
func (r *Ring) start() time.Time {
	if r.NotBefore.After(r.Opened) {
		return r.NotBefore
	}
	return r.Opened
}

// An Index is a signed plan.
type Index struct {
	Plan
	Signed, Expires time.Time

	text      *signed.Text
	selectors []labels.Selector // of the rings
}

func format() signed.Format {
	return signed.Format{Noun: "index", Header: "islet rollout 1", Fields: []string{"signed", "expires", "plan"}}
}

// New returns an index without signatures. Its signed time is now, but at least a second after the time after, which is that of the index
// that it replaces.
func New(p Plan, now, after time.Time) (*Index, error) {
	at := now.UTC().Truncate(time.Second)
	if least := after.Add(time.Second); !after.IsZero() && at.Before(least) {
		at = least.UTC()
	}
	plan, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	// The text is parsed, so that every limit of Parse applies here too.
	text := format().New(formatTime(at), formatTime(at.Add(p.Valid.Duration)), string(plan))
	return Parse(text.Bytes())
}

// Sign adds a signature by each key.
func (x *Index) Sign(keys ...ed25519.PrivateKey) { x.text.Sign(keys...) }

// Bytes returns the text that Parse parses.
func (x *Index) Bytes() []byte { return x.text.Bytes() }

// Signers returns the IDs of the keys that the signatures name. The signatures may be wrong.
func (x *Index) Signers() []string { return x.text.Signers() }

// Verify returns an error if too few of the given keys have signed the index.
func (x *Index) Verify(keys []signed.Key, threshold int, keysName string) error {
	return x.text.Verify(keys, threshold, keysName)
}

// Parse parses an index. It does not verify the signatures.
func Parse(text []byte) (_ *Index, err error) {
	x := &Index{}
	if x.text, err = format().Parse(text, x.set); err != nil {
		return nil, err
	}
	if !x.Expires.Equal(x.Signed.Add(x.Valid.Duration)) {
		return nil, errors.New("expires: it is not the signed time plus the field valid of the plan")
	}
	return x, nil
}

func (x *Index) set(name, value string) (err error) {
	switch name {
	case "signed":
		x.Signed, err = parseTime(value)
	case "expires":
		x.Expires, err = parseTime(value)
	case "plan":
		err = x.setPlan([]byte(value))
	}
	return err
}

func (x *Index) setPlan(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // a later version may have a field that restricts a ring
	if err := d.Decode(&x.Plan); err != nil {
		return err
	}
	again, err := json.Marshal(x.Plan)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, text) {
		return errors.New("it is not in the spelling of islet update rollout")
	}
	if err := x.check(); err != nil {
		return err
	}
	for i := range x.Rings {
		s, err := parseSelector(x.Rings[i].Selector)
		if err != nil {
			return fmt.Errorf("ring %s: %w", x.Rings[i].Name, err)
		}
		x.selectors = append(x.selectors, s)
	}
	return nil
}

func parseSelector(text string) (labels.Selector, error) {
	if len(text) > maxSelector {
		return nil, fmt.Errorf("the selector has more than %d bytes", maxSelector)
	}
	s, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("selector %.80q: %w", text, err)
	}
	return s, nil
}

var (
	namePattern = pattern.New(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)
	filePattern = pattern.New(`^[0-9A-Za-z][0-9A-Za-z._+~-]{0,127}$`)
	sumPattern  = pattern.New(`^[0-9a-f]{128}$`)
)

// check returns an error if a value of the plan is not allowed. The selectors are checked later.
func (p *Plan) check() error {
	if err := release.CheckVersion(p.Version); err != nil {
		return fmt.Errorf("version: %w", err)
	}
	if v := p.Valid.Duration; v < minValid || v > maxPeriod || v%time.Second != 0 {
		return fmt.Errorf("valid: it must be whole seconds between %s and %s", minValid, maxPeriod)
	}
	if len(p.Paused) > maxPaused || printable.Cut(p.Paused, maxPaused) != p.Paused {
		return fmt.Errorf("paused: the reason must have at most %d bytes, all printable", maxPaused)
	}
	if len(p.Archives) < 1 || len(p.Archives) > maxArchives {
		return fmt.Errorf("archives: there must be 1 to %d", maxArchives)
	}
	for i, a := range p.Archives {
		if err := release.CheckArch(a.Arch); err != nil {
			return fmt.Errorf("archives: %w", err)
		}
		if !filePattern().MatchString(a.File) || !sumPattern().MatchString(a.SHA512) {
			return fmt.Errorf("archives: %.80q is no name of a file without directories, or its SHA-512 is wrong", a.File)
		}
		if slices.ContainsFunc(p.Archives[:i], func(b Archive) bool { return b.Arch == a.Arch }) {
			return fmt.Errorf("archives: there are two for %s", a.Arch)
		}
	}
	if len(p.Rings) < 1 || len(p.Rings) > maxRings {
		return fmt.Errorf("rings: there must be 1 to %d", maxRings)
	}
	for i := range p.Rings {
		r := &p.Rings[i]
		if err := r.check(); err != nil {
			return fmt.Errorf("ring %.60q: %w", r.Name, err)
		}
		if slices.ContainsFunc(p.Rings[:i], func(o Ring) bool { return o.Name == r.Name }) {
			return fmt.Errorf("ring %q: there are two with this name", r.Name)
		}
		if i > 0 && !r.Opened.IsZero() && p.Rings[i-1].Opened.IsZero() {
			return fmt.Errorf("ring %q: it is open, but the ring before it is closed", r.Name)
		}
	}
	return nil
}

func (r *Ring) check() error {
	if !namePattern().MatchString(r.Name) {
		return errors.New("a name has at most 40 lower-case letters, digits and dashes")
	}
	if r.Percent < 0 || r.Percent > 100 {
		return errors.New("percent: it must be 0 to 100")
	}
	for name, d := range map[string]time.Duration{"jitter": r.Jitter.Duration, "soak": r.Soak.Duration} {
		if d < 0 || d > maxPeriod {
			return fmt.Errorf("%s: it must be 0 to %s", name, maxPeriod)
		}
	}
	for name, n := range map[string]int{"minSucceeded": r.MinSucceeded, "maxFailed": r.MaxFailed, "failed": r.Failed} {
		if n < 0 || n > maxNodes {
			return fmt.Errorf("%s: it must be 0 to %d", name, maxNodes)
		}
	}
	for name, t := range map[string]time.Time{"notBefore": r.NotBefore, "opened": r.Opened} {
		if !t.IsZero() && (t.Location() != time.UTC || t.Year() < 2000 || t.Year() > 9000) {
			return fmt.Errorf("%s: it must be a time in UTC", name)
		}
	}
	return nil
}

// archive returns the archive for an architecture, or nil.
func (p *Plan) archive(arch string) *Archive {
	for i := range p.Archives {
		if p.Archives[i].Arch == arch {
			return &p.Archives[i]
		}
	}
	return nil
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func parseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || formatTime(t) != text {
		return t, fmt.Errorf("%.60q is no time in UTC", text)
	}
	return t, nil
}
