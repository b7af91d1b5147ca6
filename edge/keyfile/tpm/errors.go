package tpm

import (
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// The reasons why a TPM does not seal or open a secret.
var (
	ErrNoDevice = errors.New("the TPM cannot be reached")
	ErrOther    = errors.New("this is not the TPM that sealed the key, or the TPM was cleared")
	ErrDamaged  = errors.New("the TPM rejects the sealed data, because it was changed")
	ErrPolicy   = errors.New("the policy of the key does not permit the present state of this machine")
	ErrLocked   = errors.New("the TPM is locked after failed attempts of another program")
	ErrOwner    = errors.New("the owner hierarchy of the TPM has a password, which islet does not support")
	ErrDisabled = errors.New("the firmware has switched off the TPM or its owner hierarchy")
	ErrFailed   = errors.New("the TPM has failed its self-test")
	ErrNoBank   = errors.New("the TPM has no SHA-256 bank with these PCRs")
)

// explain joins the reason for a response code of a TPM with the error. The parameter step names what the TPM was asked.
func explain(step string, err error) error {
	if err == nil {
		return nil
	}
	for _, r := range []struct {
		code   tpm2.TPMRC
		reason error
	}{
		{tpm2.TPMRCLockout, ErrLocked},
		{tpm2.TPMRCBadAuth, ErrOwner}, {tpm2.TPMRCAuthFail, ErrOwner}, // only the owner hierarchy is used with a password
		{tpm2.TPMRCHierarchy, ErrDisabled}, {tpm2.TPMRCDisabled, ErrDisabled}, {tpm2.TPMRCInitialize, ErrDisabled},
		{tpm2.TPMRCFailure, ErrFailed},
		{tpm2.TPMRCIntegrity, ErrDamaged}, {tpm2.TPMRCBinding, ErrDamaged}, {tpm2.TPMRCSize, ErrDamaged}, {tpm2.TPMRCHash, ErrDamaged},
		{tpm2.TPMRCInsufficient, ErrDamaged},
		{tpm2.TPMRCPolicyFail, ErrPolicy}, {tpm2.TPMRCPCRChanged, ErrPolicy},
	} {
		if errors.Is(err, r.code) {
			return fmt.Errorf("%w (%s: %w)", r.reason, step, err)
		}
	}
	return fmt.Errorf("TPM, %s: %w", step, err)
}
