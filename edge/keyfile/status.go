package keyfile

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/islet-edge/islet/edge/keyfile/tpm"
)

// A Status is the state of a key file.
type Status struct {
	Path    string
	Exists  bool
	Sealed  bool
	Problem error // why the key does not open; nil if it opens

	// These fields are for a sealed key.
	PCRs      []uint
	PolicyKey string   // fingerprint of the policy key; empty if the node has signed the policy itself
	Policy    string   // digest of the policy with the present values of the PCRs; empty if the TPM does not answer
	Copies    []string // files that may contain the plain key
}

// Status examines the key file, and opens the key. It changes nothing.
func (p Place) Status() Status {
	s := Status{Path: p.Path()}
	k := Key{place: p}
	err := k.load()
	s.Exists = !errors.Is(err, ErrNone)
	if !s.Exists {
		return s
	}
	s.Problem = err
	if err != nil || len(k.content) == Size {
		return s
	}
	s.Sealed = true
	d, err := decode(k.content)
	if err != nil {
		s.Problem = p.explain(err)
		return s
	}
	s.PCRs, s.Policy = d.PCRs, p.present(d.PCRs)
	if len(d.Signature) == 0 {
		sum := sha256.Sum256(d.PolicyKey)
		s.PolicyKey = "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
	}
	_, err = p.open(d)
	s.Problem = p.explain(err)
	copies, err := p.plainCopies()
	s.Copies, s.Problem = copies, errors.Join(s.Problem, err)
	return s
}

// present returns the digest of the policy with the present values of PCRs.
func (p Place) present(pcrs []uint) string {
	device, err := tpm.Dial(p.TPM)
	if err != nil {
		return ""
	}
	defer device.Close()
	digest, err := device.Present(pcrs)
	if err != nil {
		return ""
	}
	return hex.EncodeToString(digest)
}

// explain adds to an error of a sealed key what a person can do. Errors that this package does not know get no advice.
func (p Place) explain(err error) error {
	const plain = "islet key unseal --recovery gives the plain key back"
	for _, r := range []struct {
		reason error
		advice string
	}{
		{tpm.ErrNoDevice, "check that the firmware has switched the TPM on and that edge.tpm.device is right; without the TPM, " + plain},
		{tpm.ErrOther, "on another machine, and after a reset of the TPM, " + plain},
		{tpm.ErrDamaged, "restore " + p.Path() + " from a backup, or " + plain},
		{errDocument, "restore " + p.Path() + " from a backup; a newer islet may have written it"},
		{tpm.ErrPolicy, "after an update of the firmware or the boot loader, islet key seal --recovery seals the key again; if another " +
			"machine has the policy key, put its signature into " + p.Policies},
		{tpm.ErrLocked, "islet does not try again by itself; wait until the TPM's lockout has ended, or " + plain},
		{tpm.ErrOwner, "remove the password of the owner hierarchy; until then, " + plain},
		{tpm.ErrDisabled, "switch the TPM on in the firmware; until then, " + plain},
		{tpm.ErrFailed, "switch the machine off and on; if it fails again, " + plain},
		{tpm.ErrNoBank, "choose other PCRs, or switch the SHA-256 bank on in the firmware"},
	} {
		if errors.Is(err, r.reason) {
			return fmt.Errorf("%s: %w: %s", p.Path(), err, r.advice)
		}
	}
	return err
}
