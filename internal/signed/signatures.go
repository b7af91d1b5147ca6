package signed

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

// MaxText is the maximum size of a text in bytes, with its signatures.
const MaxText = 16 << 10

const separator = "---\n"

// A Format is the form of a kind of text.
type Format struct {
	Noun   string   // of messages, such as "release"
	Header string   // the first line
	Fields []string // the names of the following lines, in their order
}

// A Text is a text with any number of signatures. Nothing is known about their keys before Verify.
type Text struct {
	format     Format
	signed     []byte // the lines that the signatures cover
	signatures []signature
}

type signature struct {
	key   string // ID
	bytes []byte
}

// New returns a text without signatures. The values are the values of the fields, and contain no line breaks.
func (f Format) New(values ...string) *Text {
	b := []byte(f.Header + "\n")
	for i, name := range f.Fields {
		b = fmt.Appendf(b, "%s: %s\n", name, values[i])
	}
	return &Text{format: f, signed: b}
}

// Parse parses a text. It calls set for each field in their order, and returns an error of set with the field's name. It does not verify
// the signatures.
func (f Format) Parse(text []byte, set func(name, value string) error) (*Text, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("the text of the %s has more than %d bytes", f.Noun, MaxText)
	}
	at := bytes.Index(text, []byte("\n"+separator))
	if at < 0 {
		return nil, fmt.Errorf("the text of the %s has no line of dashes", f.Noun)
	}
	t := &Text{format: f, signed: text[:at+1]}
	lines := strings.Split(strings.TrimSuffix(string(t.signed), "\n"), "\n")
	if lines[0] != f.Header {
		return nil, fmt.Errorf("the text begins with %.40q, not with %q", lines[0], f.Header)
	}
	if len(lines) != 1+len(f.Fields) {
		return nil, fmt.Errorf("the %s has %d fields, not %s", f.Noun, len(lines)-1, strings.Join(f.Fields, ", "))
	}
	for i, name := range f.Fields {
		value, ok := strings.CutPrefix(lines[i+1], name+": ")
		if !ok {
			return nil, fmt.Errorf("field %d of the %s is not %s", i+1, f.Noun, name)
		}
		if err := set(name, value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for l := range strings.Lines(string(text[at+1+len(separator):])) {
		id, code, _ := strings.Cut(strings.TrimSuffix(l, "\n"), " ")
		b, err := base64.StdEncoding.DecodeString(code)
		if err != nil || len(b) != ed25519.SignatureSize {
			return nil, fmt.Errorf("the signature of key %.20q is not an Ed25519 signature", id)
		}
		t.signatures = append(t.signatures, signature{id, b})
	}
	return t, nil
}

// SameFields reports whether both texts have the same fields with the same values. Their signatures may differ.
func (t *Text) SameFields(o *Text) bool { return bytes.Equal(t.signed, o.signed) }

// Signers returns the IDs of the keys that the signatures name, without duplicates. The signatures may be wrong.
func (t *Text) Signers() (ids []string) {
	for _, s := range t.signatures {
		if !slices.Contains(ids, s.key) {
			ids = append(ids, s.key)
		}
	}
	return ids
}

// Verify returns an error if too few of the given keys have signed the text. The parameter threshold is the necessary number of different
// keys. Signatures of other keys are ignored. A wrong signature of one of the given keys is an error. The error names the keys that have
// signed. It uses keysName, such as "the node's keys", as the name of the list of given keys.
func (t *Text) Verify(keys []Key, threshold int, keysName string) error {
	if threshold < 1 {
		return fmt.Errorf("the threshold of %d signatures is less than one", threshold)
	}
	by, err := t.signedBy(keys)
	if err != nil {
		return err
	}
	if len(by) < threshold {
		names := ""
		if len(by) > 0 {
			names = " (" + strings.Join(by, ", ") + ")"
		}
		others := slices.DeleteFunc(t.Signers(), func(id string) bool { return slices.Contains(by, id) })
		unknown := ""
		if len(others) > 0 {
			unknown = fmt.Sprintf(": its other signatures are of unknown keys: %.100q", strings.Join(others, ", "))
		}
		verb := "are"
		if threshold == 1 {
			verb = "is"
		}
		return fmt.Errorf("the %s is signed by %d of %s%s, but %d %s required%s", t.format.Noun, len(by), keysName, names, threshold,
			verb, unknown)
	}
	return nil
}

// signedBy returns the IDs of those given keys that have signed the text.
func (t *Text) signedBy(keys []Key) (by []string, err error) {
	for _, k := range keys {
		id := k.ID()
		if slices.Contains(by, id) {
			continue // the list contains the key twice
		}
		for _, s := range t.signatures {
			if s.key != id {
				continue
			}
			if !ed25519.Verify(ed25519.PublicKey(k), t.signed, s.bytes) {
				return nil, fmt.Errorf("the signature of key %s is wrong: the %s was changed, or somebody else signed it",
					id, t.format.Noun)
			}
			by = append(by, id)
			break
		}
	}
	return by, nil
}

// Sign adds a signature by each key. A signature of the same key is replaced.
func (t *Text) Sign(keys ...ed25519.PrivateKey) {
	for _, k := range keys {
		id := PublicKey(k).ID()
		t.signatures = slices.DeleteFunc(t.signatures, func(s signature) bool { return s.key == id })
		t.signatures = append(t.signatures, signature{id, ed25519.Sign(k, t.signed)})
	}
}

// Bytes returns the text that Parse parses.
func (t *Text) Bytes() []byte {
	b := append(slices.Clone(t.signed), separator...)
	for _, s := range t.signatures {
		b = fmt.Appendf(b, "%s %s\n", s.key, base64.StdEncoding.EncodeToString(s.bytes))
	}
	return b
}
