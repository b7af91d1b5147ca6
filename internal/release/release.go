package release

import (
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/islet-edge/islet/internal/pattern"
	"github.com/islet-edge/islet/internal/signed"
)

const (
	// MaxText is the maximum size of a release's text in bytes.
	MaxText = signed.MaxText
	// MaxArchive is the maximum size of an archive in bytes.
	MaxArchive = 256 << 20
)

// A Release is a signed description of an archive.
type Release struct {
	Version string // without the leading v, such as 0.2.0
	Arch    string // as GOARCH
	Size    int64  // the size of the archive in bytes
	SHA512  [sha512.Size]byte

	text *signed.Text
}

// format returns the text format of a release.
func format() signed.Format {
	return signed.Format{Noun: "release", Header: "islet release 1", Fields: []string{"version", "arch", "size", "sha512"}}
}

var (
	versionPattern = pattern.New(`^[0-9]{1,6}(\.[0-9]{1,6}){2}(-[0-9A-Za-z.-]{1,40})?$`)
	archPattern    = pattern.New(`^[a-z0-9]{1,16}$`)
)

// Parse parses a release. It does not verify the signatures.
func Parse(text []byte) (_ *Release, err error) {
	r := &Release{}
	if r.text, err = format().Parse(text, r.set); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Release) set(name, value string) (err error) {
	switch name {
	case "version":
		r.Version = value
		return CheckVersion(value)
	case "arch":
		r.Arch = value
		return CheckArch(value)
	case "size":
		r.Size, err = strconv.ParseInt(value, 10, 64)
		if err != nil || r.Size <= 0 || r.Size > MaxArchive || strconv.FormatInt(r.Size, 10) != value {
			return fmt.Errorf("%.60q is not a number of bytes from 1 to %d", value, int64(MaxArchive))
		}
	case "sha512":
		b, err := hex.DecodeString(value)
		if err != nil || len(b) != sha512.Size {
			return fmt.Errorf("%.60q is not a SHA-512 checksum", value)
		}
		copy(r.SHA512[:], b)
	}
	return nil
}

// CheckVersion returns an error if text is not a valid release version, such as 0.2.0.
func CheckVersion(text string) error {
	if !versionPattern().MatchString(text) {
		return fmt.Errorf("%.60q is not a version", text)
	}
	return nil
}

// CheckArch returns an error if text is not a valid architecture name, such as arm64.
func CheckArch(text string) error {
	if !archPattern().MatchString(text) {
		return fmt.Errorf("%.60q is not an architecture name", text)
	}
	return nil
}

// ProgramIDPrefix is the prefix of the trial IDs of programs. IDs of configurations never have this prefix.
const ProgramIDPrefix = Program + "-"

// ProgramID returns the ID of a program's trials. The parameter sum is the SHA-512 of its archive, hexadecimal.
func ProgramID(version, sum string) string {
	return fmt.Sprintf("%s%s-%.12s", ProgramIDPrefix, version, sum)
}

// A Key is the public key of a signer.
type Key = signed.Key

// ParseKey parses a public key: "islet-ed25519 BASE64".
func ParseKey(text string) (Key, error) { return signed.ParseKey(text) }

// VerifySignatures returns an error if too few of the given keys have signed the release. The parameter threshold is
// the necessary number of different keys. The error lists the keys that have signed. Signatures of other keys are ignored. If a signature
// of one of the given keys is wrong, VerifySignatures returns an error.
func (r *Release) VerifySignatures(keys []Key, threshold int) error {
	return r.text.Verify(keys, threshold, "the node's keys")
}

// Sign returns the text of the release with a signature by each key.
func (r *Release) Sign(keys ...ed25519.PrivateKey) []byte {
	text := format().New(r.Version, r.Arch, strconv.FormatInt(r.Size, 10), hex.EncodeToString(r.SHA512[:]))
	text.Sign(keys...)
	return text.Bytes()
}

// IsNewer reports whether version a is newer than version b, by the rules of https://semver.org.
func IsNewer(a, b string) (bool, error) {
	x, err := version.ParseSemantic(a)
	if err != nil {
		return false, err
	}
	y, err := version.ParseSemantic(b)
	if err != nil {
		return false, err
	}
	return y.LessThan(x), nil
}
