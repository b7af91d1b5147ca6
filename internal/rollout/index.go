package rollout

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

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
	maxName     = 128
	maxPaused   = 512
	maxPeriod   = 366 * 24 * 3600 // seconds
	minValid    = 3600            // seconds
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

// New returns an index without signatures. Its signed time is now, but at least a second after the time after, which is the time of the
// index that it replaces.
func New(p Plan, now, after time.Time) (*Index, error) {
	at := now.UTC().Truncate(time.Second)
	if least := after.Add(time.Second); !after.IsZero() && at.Before(least) {
		at = least.UTC()
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	plan, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
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
	if len(x.Archives) > maxArchives || len(x.Rings) > maxRings {
		return errors.New("there are too many archives or rings")
	}
	for i := range x.Archives {
		if a := &x.Archives[i]; !isName(a.File) {
			return fmt.Errorf("archive %.80q is not a file name", a.File)
		}
	}
	for i := range x.Rings {
		r := &x.Rings[i]
		if !isName(r.Name) || len(r.Selector) > maxSelector {
			return fmt.Errorf("ring %.60q: the name is wrong, or the selector is too long", r.Name)
		}
		s, err := labels.Parse(r.Selector)
		if err != nil {
			return fmt.Errorf("ring %s: %w", r.Name, err)
		}
		x.selectors = append(x.selectors, s)
	}
	return nil
}

// isName reports whether text is the name of a ring, or of a file without its directory.
func isName(text string) bool {
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("._+~-", c) < 0 {
			return false
		}
	}
	return text != "" && text[0] != '.' && len(text) <= maxName
}

// check returns an error if a value of the plan is not allowed. An office needs it before it signs the plan. Parse checks only the rest, on
// which the safety of a node depends.
func (p *Plan) check() error {
	if printable.Cut(p.Paused, maxPaused) != p.Paused {
		return fmt.Errorf("paused: the reason must have at most %d bytes, all printable", maxPaused)
	}
	if p.Valid.Duration%time.Second != 0 {
		return errors.New("valid must be whole seconds")
	}
	err := errors.Join(release.CheckVersion(p.Version), within("valid, in seconds", seconds(p.Valid), minValid, maxPeriod),
		within("the number of archives", int64(len(p.Archives)), 1, maxArchives),
		within("the number of rings", int64(len(p.Rings)), 1, maxRings))
	if err != nil {
		return err
	}
	known := map[string]bool{} // architectures of archives, and names of rings
	for _, a := range p.Archives {
		if err := release.CheckArch(a.Arch); err != nil {
			return err
		}
		if sum, err := hex.DecodeString(a.SHA512); err != nil || len(sum) != sha512.Size || known["archive "+a.Arch] {
			return fmt.Errorf("archive %.80q: the SHA-512 is wrong, or there are two for %s", a.File, a.Arch)
		}
		known["archive "+a.Arch] = true
	}
	for i := range p.Rings {
		r := &p.Rings[i]
		if err := r.check(); err != nil {
			return fmt.Errorf("ring %.60q: %w", r.Name, err)
		}
		if known[r.Name] || i > 0 && !r.Opened.IsZero() && p.Rings[i-1].Opened.IsZero() {
			return fmt.Errorf("ring %q: there are two, or the ring before it is closed", r.Name)
		}
		known[r.Name] = true
	}
	return nil
}

func (r *Ring) check() error {
	for _, t := range []time.Time{r.NotBefore, r.Opened} {
		if !t.IsZero() && (t.Location() != time.UTC || t.Year() < 2000 || t.Year() > 9000) {
			return errors.New("notBefore and opened must be times in UTC")
		}
	}
	return errors.Join(within("percent", int64(r.Percent), 0, 100), within("jitter, in seconds", seconds(r.Jitter), 0, maxPeriod),
		within("soak, in seconds", seconds(r.Soak), 0, maxPeriod), within("minSucceeded", int64(r.MinSucceeded), 0, maxNodes),
		within("maxFailed", int64(r.MaxFailed), 0, maxNodes), within("failed", int64(r.Failed), 0, maxNodes))
}

// within returns an error if a value is out of range.
func within(name string, value, least, most int64) error {
	if value < least || value > most {
		return fmt.Errorf("%s: it must be %d to %d", name, least, most)
	}
	return nil
}

// seconds returns a period in whole seconds.
func seconds(d metav1.Duration) int64 { return int64(d.Duration / time.Second) }

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
		return t, fmt.Errorf("%.60q is not a time in UTC", text)
	}
	return t, nil
}
