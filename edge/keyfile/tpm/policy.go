package tpm

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/google/go-tpm/tpm2"
)

// MaxPCR is the highest index of a PCR. PCs have 24 PCRs.
const MaxPCR = 23

// Present returns the digest of the policy that requires the present values of PCRs. The digest of the policy without PCRs is zero. The
// policy key signs this digest with ECDSA and SHA-256, as "openssl dgst -sha256 -sign" does.
func (d *Device) Present(pcrs []uint) (digest []byte, err error) {
	if len(pcrs) == 0 {
		return make([]byte, sha256.Size), nil
	}
	values := sha256.New()
	for rest := slices.Clone(pcrs); len(rest) > 0; {
		rsp, err := tpm2.PCRRead{PCRSelectionIn: selection(rest)}.Execute(d)
		if err != nil {
			return nil, explain("read PCRs", err)
		}
		read := selected(rsp.PCRSelectionOut)
		if len(read) == 0 || len(read) != len(rsp.PCRValues.Digests) || !slices.Equal(read, rest[:min(len(read), len(rest))]) {
			return nil, ErrNoBank
		}
		for _, v := range rsp.PCRValues.Digests {
			values.Write(v.Buffer)
		}
		rest = rest[len(read):]
	}
	policy, err := tpm2.NewPolicyCalculator(tpm2.TPMAlgSHA256)
	if err != nil {
		return nil, err
	}
	err = tpm2.PolicyPCR{PcrDigest: tpm2.TPM2BDigest{Buffer: values.Sum(nil)}, Pcrs: selection(pcrs)}.Update(policy)
	return policy.Hash().Digest, err
}

func selection(pcrs []uint) tpm2.TPMLPCRSelection {
	return tpm2.TPMLPCRSelection{PCRSelections: []tpm2.TPMSPCRSelection{
		{Hash: tpm2.TPMAlgSHA256, PCRSelect: tpm2.PCClientCompatible.PCRs(pcrs...)},
	}}
}

// selected returns the indexes of a selection, in ascending order.
func selected(l tpm2.TPMLPCRSelection) (pcrs []uint) {
	for _, s := range l.PCRSelections {
		for i := range uint(len(s.PCRSelect) * 8) {
			if s.Hash == tpm2.TPMAlgSHA256 && s.PCRSelect[i/8]&(1<<(i%8)) != 0 {
				pcrs = append(pcrs, i)
			}
		}
	}
	return pcrs
}

// authority returns the public area of a policy key.
func authority(key *ecdsa.PublicKey) (*tpm2.TPMTPublic, error) {
	if key.Curve != elliptic.P256() {
		return nil, errors.New("the policy key is not an ECDSA key of the curve P-256")
	}
	point, err := key.Bytes()
	if err != nil {
		return nil, err
	}
	return &tpm2.TPMTPublic{
		Type: tpm2.TPMAlgECC, NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{UserWithAuth: true, SignEncrypt: true},
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{
			CurveID: tpm2.TPMECCNistP256,
			Scheme: tpm2.TPMTECCScheme{
				Scheme:  tpm2.TPMAlgECDSA,
				Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: tpm2.TPMAlgSHA256}),
			},
		}),
		Unique: tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{
			X: tpm2.TPM2BECCParameter{Buffer: point[1:33]}, Y: tpm2.TPM2BECCParameter{Buffer: point[33:]},
		}),
	}, nil
}

// authorizedBy returns the digest of the policy "whatever the policy key has signed".
func authorizedBy(key *ecdsa.PublicKey) ([]byte, error) {
	area, err := authority(key)
	if err != nil {
		return nil, err
	}
	name, err := tpm2.ObjectName(area)
	if err != nil {
		return nil, err
	}
	policy, err := tpm2.NewPolicyCalculator(tpm2.TPMAlgSHA256)
	if err != nil {
		return nil, err
	}
	err = tpm2.PolicyAuthorize{KeySign: *name}.Update(policy)
	return policy.Hash().Digest, err
}

// A Signatures returns the signature of a policy's digest by the policy key, in ASN.1. It returns nil if there is none.
type Signatures func(digest []byte) ([]byte, error)

// verify makes the TPM check the signature of a digest. The ticket proves the check to PolicyAuthorize.
func (d *Device) verify(
	key *ecdsa.PublicKey, digest []byte, find Signatures,
) (ticket *tpm2.TPMTTKVerified, name tpm2.TPM2BName, err error) {
	signature, err := find(digest)
	switch {
	case err != nil:
		return nil, name, err
	case signature == nil:
		return nil, name, fmt.Errorf("%w: no signature of the policy %s", ErrPolicy, hex.EncodeToString(digest))
	}
	hash := sha256.Sum256(digest)
	if !ecdsa.VerifyASN1(key, hash[:], signature) {
		return nil, name, fmt.Errorf("%w: the signature of the policy %s is not by the policy key", ErrPolicy, hex.EncodeToString(digest))
	}
	var parts struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(signature, &parts); err != nil {
		return nil, name, fmt.Errorf("decode the signature of the policy: %w", err)
	}
	area, err := authority(key)
	if err != nil {
		return nil, name, err
	}
	loaded, err := tpm2.LoadExternal{InPublic: tpm2.New2B(*area), Hierarchy: tpm2.TPMRHOwner}.Execute(d)
	if err != nil {
		return nil, name, explain("load the policy key", err)
	}
	defer d.flush(loaded.ObjectHandle)
	rsp, err := tpm2.VerifySignature{
		KeyHandle: loaded.ObjectHandle, Digest: tpm2.TPM2BDigest{Buffer: hash[:]},
		Signature: tpm2.TPMTSignature{
			SigAlg: tpm2.TPMAlgECDSA,
			Signature: tpm2.NewTPMUSignature(tpm2.TPMAlgECDSA, &tpm2.TPMSSignatureECC{
				Hash:       tpm2.TPMAlgSHA256,
				SignatureR: tpm2.TPM2BECCParameter{Buffer: parts.R.FillBytes(make([]byte, 32))},
				SignatureS: tpm2.TPM2BECCParameter{Buffer: parts.S.FillBytes(make([]byte, 32))},
			}),
		},
	}.Execute(d)
	if err != nil {
		return nil, name, explain("verify the signature of the policy", err)
	}
	return &rsp.Validation, loaded.Name, nil
}

// satisfy fulfils the policy of a sealed object in a session.
func (d *Device) satisfy(session tpm2.TPMHandle, s *Sealed, find Signatures) error {
	digest, err := d.Present(s.PCRs)
	if err != nil {
		return err
	}
	ticket, name, err := d.verify(s.PolicyKey, digest, find)
	if err != nil {
		return err
	}
	if len(s.PCRs) > 0 {
		if _, err := (tpm2.PolicyPCR{PolicySession: session, Pcrs: selection(s.PCRs)}).Execute(d); err != nil {
			return explain("compare PCRs", err)
		}
	}
	_, err = tpm2.PolicyAuthorize{
		PolicySession: session, ApprovedPolicy: tpm2.TPM2BDigest{Buffer: digest}, KeySign: name, CheckTicket: *ticket,
	}.Execute(d)
	if errors.Is(err, tpm2.TPMRCValue) { // the PCRs have changed since they were read
		return fmt.Errorf("%w (%w)", ErrPolicy, err)
	}
	return explain("authorize the policy", err)
}

// equalNames reports whether two names of objects are the same.
func equalNames(a, b []byte) bool { return len(a) > 0 && bytes.Equal(a, b) }
