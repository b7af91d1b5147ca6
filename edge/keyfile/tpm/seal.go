package tpm

import (
	"crypto/ecdsa"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// MaxSecret is the maximum size of a secret in bytes. It is the TPM specification's limit for sealed data.
const MaxSecret = 128

// A Sealed is a secret that only one TPM can open. It contains no confidential data.
type Sealed struct {
	Parent    []byte           // name of the SRK
	Public    []byte           // public area of the object
	Private   []byte           // private area, encrypted by the TPM
	PolicyKey *ecdsa.PublicKey // key that signs policies
	PCRs      []uint           // PCRs that a policy requires, ascending
}

const nonceSize = 16

// Seal seals a secret. The TPM opens it only while a signature of the policy with the present values of the PCRs exists.
func (d *Device) Seal(secret []byte, key *ecdsa.PublicKey, pcrs []uint) (*Sealed, error) {
	policy, err := authorizedBy(key)
	if err != nil {
		return nil, err
	}
	srk, area, err := d.createSRK()
	if err != nil {
		return nil, err
	}
	defer d.flush(srk.Handle)
	rsp, err := tpm2.Create{
		ParentHandle: tpm2.AuthHandle{Handle: srk.Handle, Name: srk.Name, Auth: tpm2.PasswordAuth(nil)},
		InSensitive: tpm2.TPM2BSensitiveCreate{Sensitive: &tpm2.TPMSSensitiveCreate{
			Data: tpm2.NewTPMUSensitiveCreate(&tpm2.TPM2BSensitiveData{Buffer: secret}),
		}},
		InPublic: tpm2.New2B(template(policy)),
	}.Execute(d, tpm2.HMAC(tpm2.TPMAlgSHA256, nonceSize, tpm2.Salted(srk.Handle, *area), tpm2.AESEncryption(128, tpm2.EncryptIn)))
	if err != nil {
		return nil, explain("seal the key", err)
	}
	return &Sealed{
		Parent: srk.Name.Buffer, Public: rsp.OutPublic.Bytes(), Private: rsp.OutPrivate.Buffer, PolicyKey: key, PCRs: pcrs,
	}, nil
}

// template returns the public area of sealed objects. FixedTPM and FixedParent mean that this TPM itself has created the object, so an
// object that was created elsewhere and imported is not accepted. NoDA means that no failed attempt is counted.
func template(policy []byte) tpm2.TPMTPublic {
	return tpm2.TPMTPublic{
		Type: tpm2.TPMAlgKeyedHash, NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{FixedTPM: true, FixedParent: true, NoDA: true},
		AuthPolicy:       tpm2.TPM2BDigest{Buffer: policy},
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgKeyedHash, &tpm2.TPMSKeyedHashParms{
			Scheme: tpm2.TPMTKeyedHashScheme{Scheme: tpm2.TPMAlgNull},
		}),
	}
}

// Open returns the secret.
func (d *Device) Open(s *Sealed, find Signatures) ([]byte, error) {
	public := tpm2.BytesAs2B[tpm2.TPMTPublic](s.Public)
	if err := s.check(public); err != nil {
		return nil, err
	}
	srk, area, err := d.createSRK()
	if err != nil {
		return nil, err
	}
	defer d.flush(srk.Handle)
	if !equalNames(srk.Name.Buffer, s.Parent) {
		return nil, ErrOther
	}
	session, end, err := tpm2.PolicySession(d, tpm2.TPMAlgSHA256, nonceSize, tpm2.Salted(srk.Handle, *area),
		tpm2.AESEncryption(128, tpm2.EncryptOut))
	if err != nil {
		return nil, explain("start a session", err)
	}
	defer end()
	if err := d.satisfy(session.Handle(), s, find); err != nil {
		return nil, err
	}
	object, err := tpm2.Load{
		ParentHandle: tpm2.AuthHandle{Handle: srk.Handle, Name: srk.Name, Auth: tpm2.PasswordAuth(nil)},
		InPrivate:    tpm2.TPM2BPrivate{Buffer: s.Private}, InPublic: public,
	}.Execute(d)
	if err != nil {
		return nil, explain("load the key", err)
	}
	defer d.flush(object.ObjectHandle)
	rsp, err := tpm2.Unseal{ItemHandle: tpm2.AuthHandle{Handle: object.ObjectHandle, Name: object.Name, Auth: session}}.Execute(d)
	if err != nil {
		return nil, explain("open the key", err)
	}
	return rsp.OutData.Buffer, nil
}

// check returns ErrDamaged if the public area differs from the area that Seal creates for the policy key.
func (s *Sealed) check(public tpm2.TPM2BPublic) error {
	policy, err := authorizedBy(s.PolicyKey)
	if err != nil {
		return err
	}
	area, err := public.Contents()
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrDamaged, err)
	}
	name, err := tpm2.ObjectName(area)
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrDamaged, err)
	}
	wanted := template(policy)
	wanted.Unique = area.Unique // a hash of the secret and a random value
	expected, err := tpm2.ObjectName(&wanted)
	if err != nil || !equalNames(name.Buffer, expected.Buffer) {
		return errors.Join(ErrDamaged, err)
	}
	return nil
}

// createSRK creates the SRK. The caller must flush it.
func (d *Device) createSRK() (*tpm2.NamedHandle, *tpm2.TPMTPublic, error) {
	rsp, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(d)
	if err != nil {
		return nil, nil, explain("create the storage root key", err)
	}
	area, err := rsp.OutPublic.Contents()
	if err == nil {
		var name *tpm2.TPM2BName // computed here, because the salt is encrypted to this public key
		if name, err = tpm2.ObjectName(area); err == nil {
			return &tpm2.NamedHandle{Handle: rsp.ObjectHandle, Name: *name}, area, nil
		}
	}
	d.flush(rsp.ObjectHandle)
	return nil, nil, explain("create the storage root key", err)
}

// flush removes an object from the TPM's memory. A failure is not reported: without a resource manager the next start of the TPM removes
// the object.
func (d *Device) flush(h tpm2.TPMHandle) { _, _ = tpm2.FlushContext{FlushHandle: h}.Execute(d) }
