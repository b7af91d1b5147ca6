package keyfile

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/edge/keyfile/tpm"
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/regular"
)

// A Request says how Seal and Unseal work.
type Request struct {
	// PCRs contains the numbers of the PCRs whose values the policy requires, in ascending order.
	PCRs []uint
	// PolicyKey is the public key that signs policies, in PKIX. If it is empty, Seal makes a key, signs the policy with the present values
	// of the PCRs, and forgets the private key.
	PolicyKey []byte
	// Recovery is the recovery key that opens a sealed key in place of the TPM.
	Recovery string
	// Show displays the new recovery key and waits until the user has confirmed it. If it returns an error, Seal changes nothing.
	Show func(recovery string) error
	// LockOut keeps agents from the directory of the key until unlock is called. It fails if an agent runs, because this agent may have a
	// key in memory whose file was removed. Seal calls LockOut before it makes a key.
	LockOut func() (unlock func() error, err error)

	// crash returns an error at a step, for tests.
	crash func(step string) error
}

func (r *Request) at(step string) error {
	if r.crash == nil {
		return nil
	}
	return r.crash(step)
}

// Seal seals the key to the TPM, and shows a new recovery key. If the key is sealed already, Seal opens it and seals it again. If there is
// no key yet, Seal makes one, which is then never on the disk in plain. No agent may run then; see Request.LockOut.
func (p Place) Seal(r Request) error {
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := checkPCRs(r.PCRs); err != nil {
		return err
	}
	before, err := p.content()
	if err != nil {
		return err
	}
	if before == nil {
		release, err := r.LockOut()
		if err != nil {
			return fmt.Errorf("%s does not exist, and islet key seal makes a new key only while no agent runs: %w", p.Path(), err)
		}
		defer release()
	}
	key, err := p.current(before, r.Recovery)
	if err != nil {
		return err
	}
	d, err := p.sealKey(key, &r)
	if err != nil {
		return p.explain(err)
	}
	recovery, err := newRecovery()
	if err != nil {
		return err
	}
	if err := d.addRecovery(key, recovery); err != nil {
		return err
	}
	next := p.Path() + sealedSuffix
	if err := p.prepare(d, key, recovery, next, &r); err != nil {
		return p.explain(errors.Join(err, removeIfThere(next)))
	}
	if err := r.Show(recovery); err != nil {
		return errors.Join(fmt.Errorf("show the recovery key; nothing was changed: %w", err), removeIfThere(next))
	}
	if now, err := p.content(); err != nil || !bytes.Equal(now, before) { // a person may take hours to confirm
		return errors.Join(fmt.Errorf("%s was changed meanwhile, repeat the command; the shown recovery key is not valid", p.Path()),
			err, removeIfThere(next))
	}
	if err := r.at("shown"); err != nil {
		return err
	}
	return p.replace(next, before != nil, &r)
}

// content returns the content of the key file, or nil if there is none.
func (p Place) content() ([]byte, error) {
	k := Key{place: p}
	err := k.load()
	if errors.Is(err, ErrNone) {
		return nil, nil
	}
	return k.content, err
}

// current returns the key in the content of a key file, or a new one if there is no content.
func (p Place) current(content []byte, recovery string) ([]byte, error) {
	switch len(content) {
	case 0:
		return newKey()
	case Size:
		return content, nil
	}
	return p.reveal(content, recovery)
}

// reveal opens the content of a sealed key file with the recovery key. If the recovery key is empty, reveal uses the TPM.
func (p Place) reveal(content []byte, recovery string) ([]byte, error) {
	d, err := decode(content)
	if err != nil {
		return nil, p.explain(err)
	}
	if recovery != "" {
		return d.recover(recovery)
	}
	key, err := p.open(d)
	return key, p.explain(err)
}

// sealKey returns a document with the key as the TPM has sealed it.
func (p Place) sealKey(key []byte, r *Request) (*document, error) {
	device, err := tpm.Dial(p.TPM)
	if err != nil {
		return nil, err
	}
	defer device.Close()
	d := &document{Version: version, PolicyKey: r.PolicyKey, PCRs: r.PCRs}
	if len(d.PolicyKey) == 0 {
		policy, err := device.Present(r.PCRs)
		if err != nil {
			return nil, err
		}
		if err := d.sign(policy); err != nil {
			return nil, err
		}
	}
	policyKey, err := parsePolicyKey(d.PolicyKey)
	if err != nil {
		return nil, err
	}
	sealed, err := device.Seal(key, policyKey, r.PCRs)
	if err != nil {
		return nil, err
	}
	d.Parent, d.Public, d.Private = sealed.Parent, sealed.Public, sealed.Private
	return d, nil
}

// sign signs a policy with a new policy key, whose private part is not kept.
func (d *document) sign(policy []byte) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(policy)
	if d.Signature, err = ecdsa.SignASN1(rand.Reader, private, hash[:]); err != nil {
		return err
	}
	d.PolicyKey, err = x509.MarshalPKIXPublicKey(&private.PublicKey)
	return err
}

// prepare writes the document to a file, reads it back, and proves that both the TPM and the recovery key open it.
func (p Place) prepare(d *document, key []byte, recovery, next string, r *Request) error {
	data, err := d.encode()
	if err != nil {
		return err
	}
	if err := durable.Write(next, data, 0o600); err != nil {
		return err
	}
	if err := r.at("written"); err != nil {
		return err
	}
	read, err := regular.Read(next, maxFile)
	if err != nil {
		return err
	}
	if d, err = decode(read); err != nil {
		return err
	}
	byTPM, err := p.open(d)
	if err != nil {
		return fmt.Errorf("prove that the key opens; nothing was changed: %w", err)
	}
	byPerson, err := d.recover(recovery)
	if err != nil {
		return err
	}
	if !bytes.Equal(byTPM, key) || !bytes.Equal(byPerson, key) {
		return errDocument
	}
	return r.at("proved")
}

// replace gives the prepared file the name of the key file, and removes the plain key.
func (p Place) replace(next string, found bool, r *Request) error {
	if !found { // the agent may have made a key meanwhile
		if err := os.Link(next, p.Path()); err != nil {
			return errors.Join(fmt.Errorf("a key was made meanwhile, repeat the command: %w", err), removeIfThere(next))
		}
		return errors.Join(os.Remove(next), p.sync())
	}
	removed := p.Path() + plainSuffix
	if !p.IsSealed() {
		if err := p.removePlain(); err != nil {
			return err
		}
		if err := os.Link(p.Path(), removed); err != nil { // so that the plain key can be overwritten after the rename
			return err
		}
	}
	if err := r.at("linked"); err != nil {
		return err
	}
	if err := os.Rename(next, p.Path()); err != nil {
		return err
	}
	if err := r.at("renamed"); err != nil {
		return err
	}
	if err := p.sync(); err != nil {
		return err
	}
	if err := r.at("synced"); err != nil {
		return err
	}
	if err := p.removePlain(); err != nil {
		return fmt.Errorf("the key is sealed, but a plain copy remains: %w", err)
	}
	return nil
}

// Unseal replaces the sealed key with the plain one. It opens the key with the recovery key, if there is one, and otherwise with the TPM.
func (p Place) Unseal(r Request) error {
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	k := Key{place: p}
	if err := k.load(); err != nil {
		return err
	}
	if len(k.content) == Size {
		return errors.New("the key is not sealed")
	}
	key, err := p.reveal(k.content, r.Recovery)
	if err != nil {
		return err
	}
	next := p.Path() + plainSuffix
	if err := durable.Write(next, key, 0o600); err != nil {
		return err
	}
	if err := r.at("written"); err != nil {
		return err
	}
	if read, err := regular.Read(next, Size); err != nil || !bytes.Equal(read, key) {
		return errors.Join(errors.New("the plain key cannot be read back; nothing was changed"), err, removeIfThere(next))
	}
	if err := os.Rename(next, p.Path()); err != nil {
		return err
	}
	if err := r.at("renamed"); err != nil {
		return err
	}
	return errors.Join(removeIfThere(p.Path()+sealedSuffix), p.sync())
}

// lock prevents two changes of the key file at the same time. The lock is one of the directory, because other names in it change.
func (p Place) lock() (unlock func() error, err error) {
	dir, err := os.Open(p.Dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		return nil, fmt.Errorf("another islet key command is changing the key in %s: %w", p.Dir, err)
	}
	return dir.Close, nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
