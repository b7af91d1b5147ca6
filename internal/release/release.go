package release

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// MaxText is the maximum size of a release's text in bytes.
	MaxText = 16 << 10
	// MaxArchive is the maximum size of an archive in bytes.
	MaxArchive = 256 << 20

	header    = "islet release 1"
	separator = "---\n"
)

// A Release is a signed description of an archive.
type Release struct {
	Version string // without the leading v, such as 0.2.0
	Arch    string // as GOARCH
	Size    int64  // the size of the archive in bytes
	SHA512  [sha512.Size]byte

	signedText []byte // the text that the signatures cover
	signatures []signature
}

type signature struct {
	key   string // ID
	bytes []byte
}

var (
	versionPattern = regexp.MustCompile(`^[0-9]{1,6}(\.[0-9]{1,6}){2}(-[0-9A-Za-z.-]{1,40})?$`)
	archPattern    = regexp.MustCompile(`^[a-z0-9]{1,16}$`)
)

// Parse parses a release. It does not verify the signatures.
func Parse(text []byte) (*Release, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("the text of the release has more than %d bytes", MaxText)
	}
	at := bytes.Index(text, []byte("\n"+separator))
	if at < 0 {
		return nil, errors.New("the text of the release has no line of dashes")
	}
	r := &Release{signedText: text[:at+1]}
	lines := strings.Split(strings.TrimSuffix(string(r.signedText), "\n"), "\n")
	if lines[0] != header {
		return nil, fmt.Errorf("the text begins with %.40q, not with %q", lines[0], header)
	}
	fields := []string{"version", "arch", "size", "sha512"}
	if len(lines) != 1+len(fields) {
		return nil, fmt.Errorf("the release has %d fields, not %s", len(lines)-1, strings.Join(fields, ", "))
	}
	for i, name := range fields {
		value, ok := strings.CutPrefix(lines[i+1], name+": ")
		if !ok {
			return nil, fmt.Errorf("field %d of the release is not %s", i+1, name)
		}
		if err := r.set(name, value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for l := range strings.Lines(string(text[at+1+len(separator):])) {
		id, code, _ := strings.Cut(strings.TrimSuffix(l, "\n"), " ")
		b, err := base64.StdEncoding.DecodeString(code)
		if err != nil || len(b) != ed25519.SignatureSize {
			return nil, fmt.Errorf("the signature of key %.20q is no Ed25519 signature", id)
		}
		r.signatures = append(r.signatures, signature{id, b})
	}
	return r, nil
}

func (r *Release) set(name, value string) (err error) {
	switch name {
	case "version":
		r.Version = value
		if !versionPattern.MatchString(value) {
			return fmt.Errorf("%.60q is no version", value)
		}
	case "arch":
		r.Arch = value
		if !archPattern.MatchString(value) {
			return fmt.Errorf("%.60q is no architecture", value)
		}
	case "size":
		r.Size, err = strconv.ParseInt(value, 10, 64)
		if err != nil || r.Size <= 0 || r.Size > MaxArchive || strconv.FormatInt(r.Size, 10) != value {
			return fmt.Errorf("%.60q is no size of 1 to %d bytes", value, int64(MaxArchive))
		}
	case "sha512":
		b, err := hex.DecodeString(value)
		if err != nil || len(b) != sha512.Size {
			return fmt.Errorf("%.60q is no SHA-512", value)
		}
		copy(r.SHA512[:], b)
	}
	return nil
}

// A Key is the public key of a signer.
type Key ed25519.PublicKey

// keyHead is the prefix of a key's text.
const keyHead = "islet-ed25519 "

// ParseKey parses a public key: "islet-ed25519 BASE64".
func ParseKey(text string) (Key, error) {
	code, ok := strings.CutPrefix(strings.TrimSpace(text), keyHead)
	b, err := base64.StdEncoding.DecodeString(code)
	if !ok || err != nil || len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%.60q is no key: %sand 32 bytes in base64", text, keyHead)
	}
	return Key(b), nil
}

// String returns the text that ParseKey parses.
func (k Key) String() string { return keyHead + base64.StdEncoding.EncodeToString(k) }

// ID returns the name of the key in signatures.
func (k Key) ID() string {
	sum := sha256.Sum256(k)
	return hex.EncodeToString(sum[:8])
}

// VerifySignatures returns an error if too few of the given keys have signed the release. The parameter threshold is
// the necessary number of different keys. The error names the keys that have signed. Signatures of other keys are
// ignored. If a signature of one of the given keys is wrong, VerifySignatures returns an error.
func (r *Release) VerifySignatures(keys []Key, threshold int) error {
	if threshold < 1 {
		return fmt.Errorf("the threshold of %d signatures is less than one", threshold)
	}
	var by []string
	for _, k := range keys {
		id := k.ID()
		if slices.Contains(by, id) {
			continue // the list contains the key twice
		}
		for _, s := range r.signatures {
			if s.key != id {
				continue
			}
			if !ed25519.Verify(ed25519.PublicKey(k), r.signedText, s.bytes) {
				return fmt.Errorf("the signature of key %s is wrong: the release was changed, or somebody else signed it", id)
			}
			by = append(by, id)
			break
		}
	}
	if len(by) < threshold {
		names := ""
		if len(by) > 0 {
			names = " (" + strings.Join(by, ", ") + ")"
		}
		return fmt.Errorf("the release is signed by %d of the node's keys%s, but %d are required", len(by), names, threshold)
	}
	return nil
}

// Sign returns the text of the release with a signature by each key.
func (r *Release) Sign(keys ...ed25519.PrivateKey) []byte {
	text := fmt.Appendf(nil, "%s\nversion: %s\narch: %s\nsize: %d\nsha512: %x\n", header, r.Version, r.Arch, r.Size, r.SHA512)
	signed := slices.Clone(text)
	text = append(text, separator...)
	for _, k := range keys {
		id := Key(k.Public().(ed25519.PublicKey)).ID()
		text = fmt.Appendf(text, "%s %s\n", id, base64.StdEncoding.EncodeToString(ed25519.Sign(k, signed)))
	}
	return text
}
