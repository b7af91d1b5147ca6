package keyfile

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/islet-edge/islet/edge/keyfile/tpm"
	"github.com/islet-edge/islet/internal/regular"
)

// A document is the content of a sealed key file. Nothing in it is confidential.
type document struct {
	Version   int    `json:"version"`
	Parent    []byte `json:"parent"`    // name of the TPM's storage root key
	Public    []byte `json:"public"`    // of the object in the TPM
	Private   []byte `json:"private"`   // of the object, encrypted by the TPM
	PolicyKey []byte `json:"policyKey"` // PKIX
	PCRs      []uint `json:"pcrs,omitempty"`
	// Signature is the node's own signature of the policy at the time of Seal. It is empty if somebody else has the policy key.
	Signature []byte `json:"signature,omitempty"`
	Salt      []byte `json:"salt"`
	Recovery  []byte `json:"recovery"` // the key, encrypted with the recovery key
}

const version = 1

var errDocument = errors.New("the sealed key file is damaged")

func (d *document) encode() ([]byte, error) { return json.MarshalIndent(d, "", " ") }

func decode(data []byte) (*document, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var d document
	if err := decoder.Decode(&d); err != nil {
		return nil, fmt.Errorf("%w: %w", errDocument, err)
	}
	if d.Version != version {
		return nil, fmt.Errorf("%w: it has the version %d, and this islet knows version %d only", errDocument, d.Version, version)
	}
	if err := checkPCRs(d.PCRs); err != nil {
		return nil, fmt.Errorf("%w: %w", errDocument, err)
	}
	return &d, nil
}

// checkPCRs checks that the indexes of PCRs exist and ascend.
func checkPCRs(pcrs []uint) error {
	for i, n := range pcrs {
		if n > tpm.MaxPCR || i > 0 && n <= pcrs[i-1] {
			return fmt.Errorf("the PCRs %v are not different numbers from 0 to %d in ascending order", pcrs, tpm.MaxPCR)
		}
	}
	return nil
}

// sealed returns the part of the document that the TPM opens.
func (d *document) sealed() (*tpm.Sealed, error) {
	key, err := parsePolicyKey(d.PolicyKey)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDocument, err)
	}
	return &tpm.Sealed{Parent: d.Parent, Public: d.Public, Private: d.Private, PolicyKey: key, PCRs: d.PCRs}, nil
}

func parsePolicyKey(der []byte) (*ecdsa.PublicKey, error) {
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, err
	}
	if key, ok := key.(*ecdsa.PublicKey); ok && key.Curve.Params().BitSize == 256 {
		return key, nil
	}
	return nil, errors.New("the policy key is not an ECDSA key of the curve P-256")
}

// open opens the key with the TPM.
func (p Place) open(d *document) ([]byte, error) {
	sealed, err := d.sealed()
	if err != nil {
		return nil, err
	}
	device, err := tpm.Dial(p.TPM)
	if err != nil {
		return nil, err
	}
	defer device.Close()
	key, err := device.Open(sealed, p.signatures(d, sealed.PolicyKey))
	if err == nil && len(key) != Size {
		err = errDocument
	}
	return key, err
}

// maxSignature is the maximum size of a signature file in bytes. An ECDSA signature of P-256 has at most 72.
const maxSignature = 512

// SignatureFile returns the path of the file with the signature of a policy.
func (p Place) SignatureFile(policy []byte) string {
	return filepath.Join(p.Policies, hex.EncodeToString(policy)+".sig")
}

// signatures finds a policy's signature: the signature that the node itself made at Seal, or a signature in the directory.
func (p Place) signatures(d *document, key *ecdsa.PublicKey) tpm.Signatures {
	return func(policy []byte) ([]byte, error) {
		if len(d.Signature) > 0 {
			if hash := sha256.Sum256(policy); !ecdsa.VerifyASN1(key, hash[:], d.Signature) {
				return nil, nil // it is one of the policy with other values of the PCRs
			}
			return d.Signature, nil
		}
		data, err := regular.Read(p.SignatureFile(policy), maxSignature)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return data, err
	}
}

const recoverySize = 20 // bytes of a recovery key, which are 32 letters and digits

var recoveryText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding) // Crockford's

// ErrRecovery is the error for a recovery key that does not open the key file.
var ErrRecovery = errors.New("this is not the recovery key of this key file")

// newRecovery returns a new recovery key in groups of four.
func newRecovery() (string, error) {
	secret := make([]byte, recoverySize)
	if _, err := rand.Read(secret); err != nil {
		return "", err
	}
	var groups []string
	for g := range slices.Chunk([]byte(recoveryText.EncodeToString(secret)), 4) {
		groups = append(groups, string(g))
	}
	return strings.Join(groups, "-"), nil
}

// recoveryCipher returns the cipher of a recovery key as a person has typed it. The key has 160 random bits, so no slow derivation is
// necessary. Each salt is used for one encryption, so the nonce is constant.
func recoveryCipher(typed string, salt []byte) (cipher.AEAD, error) {
	spelling := strings.NewReplacer("-", "", " ", "", "\t", "", "\r", "", "\n", "", "o", "0", "i", "1", "l", "1")
	clean := spelling.Replace(strings.ToLower(typed))
	secret, err := recoveryText.DecodeString(clean)
	if err != nil || len(secret) != recoverySize {
		return nil, fmt.Errorf("%w: it has %d letters and digits in groups of four", ErrRecovery, recoveryText.EncodedLen(recoverySize))
	}
	derived, err := hkdf.Key(sha256.New, secret, salt, "islet: recovery of store.key", Size)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// addRecovery encrypts the key with a recovery key.
func (d *document) addRecovery(key []byte, recovery string) error {
	d.Salt = make([]byte, 16)
	if _, err := rand.Read(d.Salt); err != nil {
		return err
	}
	aead, err := recoveryCipher(recovery, d.Salt)
	if err != nil {
		return err
	}
	d.Recovery = aead.Seal(nil, make([]byte, aead.NonceSize()), key, nil)
	return nil
}

// recover opens the key with a recovery key.
func (d *document) recover(recovery string) ([]byte, error) {
	aead, err := recoveryCipher(recovery, d.Salt)
	if err != nil {
		return nil, err
	}
	key, err := aead.Open(nil, make([]byte, aead.NonceSize()), d.Recovery, nil)
	if err != nil || len(key) != Size {
		return nil, ErrRecovery
	}
	return key, nil
}
