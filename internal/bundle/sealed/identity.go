package sealed

import (
	"fmt"
	"strings"

	"filippo.io/age"
)

// IdentitySize is the size of a node's private key in bytes.
const IdentitySize = 32

// An Identity is the private key with which a node opens sealed Secrets.
type Identity struct{ key *age.X25519Identity }

// NewIdentity returns the identity with the given private key. The same bytes always give the same identity.
func NewIdentity(private []byte) (*Identity, error) {
	if len(private) != IdentitySize {
		return nil, fmt.Errorf("a private key of a node has %d bytes, not %d", IdentitySize, len(private))
	}
	key, err := age.ParseX25519Identity(encodeIdentity(private))
	if err != nil {
		return nil, err // the error does not contain the key
	}
	return &Identity{key}, nil
}

// Recipient returns the public key (age1...). islet bundle seal encrypts Secrets for it.
func (i *Identity) Recipient() string { return i.key.Recipient().String() }

// Open decrypts a document. The error does not contain decrypted data.
func (i *Identity) Open(d *Document) (*Secret, error) { return d.Open(i.key) }

// age reads a private key only from its text form. This form is Bech32 (BIP 173) with this prefix, in upper case.
const (
	identityPrefix = "age-secret-key-"
	bech32Letters  = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
)

// encodeIdentity returns the text of a private key.
func encodeIdentity(private []byte) string {
	values := groupBits(private)
	var text strings.Builder
	text.WriteString(identityPrefix + "1")
	for _, v := range append(values, checksum(identityPrefix, values)...) {
		text.WriteByte(bech32Letters[v])
	}
	return strings.ToUpper(text.String())
}

// groupBits returns the bits of data in groups of five. Zeros fill the last group.
func groupBits(data []byte) (values []byte) {
	var bits, count uint
	for _, b := range data {
		bits, count = bits<<8|uint(b), count+8
		for ; count >= 5; count -= 5 {
			values = append(values, byte(bits>>(count-5)&31))
		}
		bits &= 1<<count - 1
	}
	if count > 0 {
		values = append(values, byte(bits<<(5-count)&31))
	}
	return values
}

// checksum returns the six values of the checksum of BIP 173 for a lower case prefix.
func checksum(prefix string, values []byte) (sum []byte) {
	remainder := uint32(1)
	add := func(value byte) {
		top := remainder >> 25
		remainder = remainder&(1<<25-1)<<5 ^ uint32(value)
		for i, generator := range [5]uint32{0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3} {
			if top>>i&1 == 1 {
				remainder ^= generator
			}
		}
	}
	for _, c := range []byte(prefix) {
		add(c >> 5)
	}
	add(0)
	for _, c := range []byte(prefix) {
		add(c & 31)
	}
	for _, v := range append(values[:len(values):len(values)], 0, 0, 0, 0, 0, 0) {
		add(v)
	}
	remainder ^= 1
	for i := range 6 {
		sum = append(sum, byte(remainder>>(5*(5-i))&31))
	}
	return sum
}
