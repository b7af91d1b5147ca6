package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/internal/signed"
)

// A Policy says who must have signed a bundle.
type Policy struct {
	Keys      []signed.Key
	Threshold int    // number of different keys
	KeysName  string // for errors; empty means "the node's keys"
}

// verify returns an error unless the policy's signers have signed the text, which is nil for a bundle without signatures. Without a policy,
// every bundle is accepted.
func (p *Policy) verify(s *Signature) error {
	switch {
	case p == nil:
		return nil
	case s == nil:
		return errors.New("the bundle is not signed: islet bundle sign")
	}
	return s.Text.Verify(p.Keys, p.Threshold, cmp.Or(p.KeysName, "the node's keys"))
}

// A Signature is the signed text of a bundle.
type Signature struct {
	Text *signed.Text
	Time time.Time // when the first signer signed it

	name   string
	number int64
	id     digest.Digest // of the contents manifest
}

func textFormat() signed.Format {
	return signed.Format{Noun: "bundle", Header: "islet bundle 1", Fields: []string{"name", "number", "signed", "manifest"}}
}

// NewSignature returns a text without signatures for the contents manifest with the digest id.
func NewSignature(c *Contents, id digest.Digest, now time.Time) *Signature {
	text := textFormat().New(c.Name, strconv.FormatInt(c.Number, 10), FormatTime(now), id.String())
	return &Signature{Text: text, Time: now.UTC().Truncate(time.Second), name: c.Name, number: c.Number, id: id}
}

// parseSignature parses a text. It does not verify the signatures.
func parseSignature(text []byte) (*Signature, error) {
	s := &Signature{}
	var err error
	if s.Text, err = textFormat().Parse(text, s.set); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Signature) set(name, value string) (err error) {
	switch name {
	case "name":
		s.name = value
		if !nameForm.matches(value) {
			return fmt.Errorf("%.80q is not a bundle name", value)
		}
	case "number":
		s.number, err = strconv.ParseInt(value, 10, 64)
		if err != nil || s.number < 1 || s.number > maxNumber || strconv.FormatInt(s.number, 10) != value {
			return fmt.Errorf("%.60q is not a number from 1", value)
		}
	case "signed":
		s.Time, err = time.Parse(time.RFC3339, value)
		if err != nil || FormatTime(s.Time) != value {
			return fmt.Errorf("%.60q is not a time in UTC", value)
		}
	case "manifest":
		s.id = digest.Digest(value)
		return CheckDigest(s.id)
	}
	return nil
}

// covers returns an error unless the text is about the given contents.
func (s *Signature) covers(c *Contents) error {
	if s.name != c.Name || s.number != c.Number {
		return fmt.Errorf("the signatures are for %s number %d, the contents are %s number %d", s.name, s.number, c.Name, c.Number)
	}
	return nil
}
