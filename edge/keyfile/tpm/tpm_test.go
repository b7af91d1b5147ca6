package tpm

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/edge/keyfile/tpmtest"
)

func dial(t *testing.T, socket string) *Device {
	t.Helper()
	d, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// A signer is a policy key with the signatures that it has made.
type signer struct {
	key  *ecdsa.PrivateKey
	made map[string][]byte
}

func newSigner(t *testing.T) *signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{key, map[string][]byte{}}
}

func (s *signer) sign(t *testing.T, digest []byte, err error) {
	t.Helper()
	hash := sha256.Sum256(digest)
	signature, err2 := ecdsa.SignASN1(rand.Reader, s.key, hash[:])
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	s.made[string(digest)] = signature
}

func (s *signer) find(digest []byte) ([]byte, error) { return s.made[string(digest)], nil }

// TestSeal checks the life of a sealed secret with a real TPM implementation: it opens on its own TPM, also after a reboot, and not on
// another one. A policy with PCRs opens it in each state that the policy key has signed, and in no other. Changed data does not open.
func TestSeal(t *testing.T) {
	dir, secret := t.TempDir(), bytes.Repeat([]byte{0x5a}, MaxSecret)
	socket, end := tpmtest.Start(t, dir)
	d := dial(t, socket)
	free, bound := newSigner(t), newSigner(t)
	digest, err := d.Present(nil)
	free.sign(t, digest, err)
	pcrs := []uint{0, 1, 2, 3, 4, 5, 6, 7, 16, 23}
	digest, err = d.Present(pcrs)
	bound.sign(t, digest, err)
	plain, err := d.Seal(secret, &free.key.PublicKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	strict, err := d.Seal(secret, &bound.key.PublicKey, pcrs)
	if err != nil {
		t.Fatal(err)
	}
	opens := func(when string, d *Device, s *Sealed, find Signatures, want error) {
		t.Helper()
		got, err := d.Open(s, find)
		if want == nil && (err != nil || !bytes.Equal(got, secret)) || want != nil && (!errors.Is(err, want) || got != nil) {
			t.Errorf("%s: %x, %v; want %v", when, got, err, want)
		}
	}
	for range 4 { // more often than the TPM has slots for objects and sessions
		opens("at once", d, plain, free.find, nil)
		opens("at once, with PCRs", d, strict, bound.find, nil)
	}
	none := func([]byte) ([]byte, error) { return nil, nil }
	opens("without a signature", d, plain, none, ErrPolicy)
	opens("signed by another key", d, plain, func(b []byte) ([]byte, error) { return bound.find(append([]byte(nil), digest...)) }, ErrPolicy)
	broken := errors.New("unreadable")
	opens("with a broken signature", d, plain, func([]byte) ([]byte, error) { return nil, broken }, broken)

	for what, change := range map[string]func(*Sealed){
		"private area":    func(s *Sealed) { s.Private[len(s.Private)-1] ^= 1 },
		"short":           func(s *Sealed) { s.Private = s.Private[:8] },
		"empty":           func(s *Sealed) { s.Private, s.Public = nil, nil },
		"public area":     func(s *Sealed) { s.Public[len(s.Public)-1] ^= 1 },
		"attributes":      func(s *Sealed) { s.Public[4] ^= 0x02 },
		"the policy key":  func(s *Sealed) { s.PolicyKey = &bound.key.PublicKey },
		"another's areas": func(s *Sealed) { s.Public = strict.Public },
	} {
		s := *plain
		s.Private, s.Public = bytes.Clone(s.Private), bytes.Clone(s.Public)
		change(&s)
		opens(what, d, &s, free.find, ErrDamaged)
	}
	if _, err := (tpm2.PCRReset{PCRHandle: tpm2.AuthHandle{Handle: 23, Auth: tpm2.PasswordAuth(nil)}}).Execute(d); err != nil {
		t.Fatal(err)
	}
	_, err = tpm2.PCRExtend{
		PCRHandle: tpm2.AuthHandle{Handle: 23, Auth: tpm2.PasswordAuth(nil)},
		Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: secret[:32]}}},
	}.Execute(d)
	if err != nil {
		t.Fatal(err)
	}
	opens("after an update", d, strict, bound.find, ErrPolicy)
	opens("after an update, without PCRs", d, plain, free.find, nil)
	digest, err = d.Present(pcrs)
	bound.sign(t, digest, err)
	opens("after a signed update", d, strict, bound.find, nil)

	d.Close()
	end()
	socket, _ = tpmtest.Start(t, dir)
	d = dial(t, socket)
	opens("after a reboot", d, plain, free.find, nil)
	opens("after a reboot, with PCRs", d, strict, bound.find, nil)
	socket, _ = tpmtest.Start(t, t.TempDir())
	opens("on another TPM", dial(t, socket), plain, free.find, ErrOther)
	if _, err := (tpm2.Clear{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHLockout, Auth: tpm2.PasswordAuth(nil)}}).Execute(d); err != nil {
		t.Fatal(err)
	}
	opens("after a reset of the TPM", d, plain, free.find, ErrOther)

	_, err = tpm2.HierarchyChangeAuth{
		AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)}, NewAuth: tpm2.TPM2BAuth{Buffer: []byte("owner")},
	}.Execute(d)
	if err != nil {
		t.Fatal(err)
	}
	opens("with a password of the owner", d, plain, free.find, ErrOwner)
}

// TestBusSeesNothing checks that neither the creation nor the opening of an object sends the secret in clear text.
func TestBusSeesNothing(t *testing.T) {
	socket, _ := tpmtest.Start(t, t.TempDir())
	d, secret, s := dial(t, socket), []byte("this secret must not be on the bus"), newSigner(t)
	tap := &tapped{ReadWriteCloser: d.conn}
	d.conn = tap
	digest, err := d.Present(nil)
	s.sign(t, digest, err)
	sealed, err := d.Seal(secret, &s.key.PublicKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.Open(sealed, s.find); err != nil || !bytes.Equal(got, secret) {
		t.Fatalf("%q, %v", got, err)
	}
	if tap.seen.Len() < 1000 || bytes.Contains(tap.seen.Bytes(), secret[:8]) {
		t.Errorf("the bus has carried %d bytes, and the secret", tap.seen.Len())
	}
}

type tapped struct {
	io.ReadWriteCloser
	seen bytes.Buffer
}

func (t *tapped) Read(p []byte) (int, error) {
	n, err := t.ReadWriteCloser.Read(p)
	t.seen.Write(p[:n])
	return n, err
}

func (t *tapped) Write(p []byte) (int, error) {
	t.seen.Write(p)
	return t.ReadWriteCloser.Write(p)
}

// TestCodes checks the reason for each response code that a person can do something about. A TPM that answers with a code is asked once.
func TestCodes(t *testing.T) {
	s := newSigner(t)
	for code, want := range map[tpm2.TPMRC]error{
		tpm2.TPMRCLockout: ErrLocked, tpm2.TPMRCBadAuth | 0x900: ErrOwner, tpm2.TPMRCAuthFail | 0x900: ErrOwner,
		tpm2.TPMRCHierarchy | 0x100: ErrDisabled, tpm2.TPMRCInitialize: ErrDisabled, tpm2.TPMRCFailure: ErrFailed,
		tpm2.TPMRCIntegrity | 0x1c0: ErrDamaged, tpm2.TPMRCPolicyFail | 0x900: ErrPolicy, tpm2.TPMRCRetry: tpm2.TPMRCRetry,
	} {
		answers := 0
		d := answering(t, func([]byte) []byte {
			answers++
			return []byte{0x80, 1, 0, 0, 0, headerSize, byte(code >> 24), byte(code >> 16), byte(code >> 8), byte(code)}
		})
		if _, err := d.Seal([]byte("x"), &s.key.PublicKey, nil); !errors.Is(err, want) || answers != 1 {
			t.Errorf("%x: %v after %d commands, want %v", uint32(code), err, answers, want)
		}
	}
}

// TestBrokenDevice checks that a silent device and one that sends nonsense are errors, and that they are not used again.
func TestBrokenDevice(t *testing.T) {
	for what, answer := range map[string][]byte{
		"nothing": nil, "no end": {0x80, 1, 0, 0, 0, 200, 0, 0, 0, 0, 0}, "huge": {0x80, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		"too small": {0x80, 1, 0, 0, 0, 3, 0, 0, 0, 0}, "too much": append([]byte{0x80, 1, 0, 0, 0, 10, 0, 0, 0, 0}, make([]byte, 60)...),
	} {
		var answers atomic.Int32
		d := answering(t, func([]byte) []byte { answers.Add(1); return answer })
		d.timeout = 20 * time.Millisecond
		for range 2 {
			if _, err := d.Present([]uint{7}); !errors.Is(err, ErrNoDevice) {
				t.Errorf("%s: %v", what, err)
			}
		}
		d.conn.Close()
		if answers.Load() > 1 {
			t.Errorf("%s: asked %d times", what, answers.Load())
		}
	}
	regular := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(regular, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{regular, regular + ".missing", t.TempDir()} {
		if _, err := Dial(path); !errors.Is(err, ErrNoDevice) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestBlockingDevice checks that a device is opened in blocking mode, because a TPM's device returns an empty answer too early in the other
// mode. A pseudoterminal is a device that can be polled too.
func TestBlockingDevice(t *testing.T) {
	if _, err := os.Stat("/dev/ptmx"); err != nil {
		t.Skip("no pseudoterminals here:", err)
	}
	d := dial(t, "/dev/ptmx")
	raw, err := d.conn.(*os.File).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var flags int
	err2 := raw.Control(func(fd uintptr) { flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0) })
	if err := errors.Join(err, err2); err != nil || flags&unix.O_NONBLOCK != 0 || flags&unix.O_ACCMODE != unix.O_RDWR {
		t.Errorf("flags %#x, %v", flags, err)
	}
}

// answering returns a device whose other side answers each command with a function.
func answering(t *testing.T, answer func([]byte) []byte) *Device {
	near, far := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for buf := make([]byte, MaxResponse); ; {
			n, err := far.Read(buf)
			if err != nil {
				return
			}
			if _, err := far.Write(answer(buf[:n])); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		near.Close()
		<-ended
	})
	return &Device{path: "test", conn: near, timeout: time.Minute}
}
