package keyfile

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/edge/keyfile/tpm"
	"github.com/islet-edge/islet/edge/keyfile/tpmtest"
)

// startTPM starts a TPM with its state in a new directory. It returns the path of its socket.
func startTPM(t *testing.T) string {
	t.Helper()
	socket, _ := tpmtest.Start(t, t.TempDir())
	return socket
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noted returns a Request that stores the recovery key in a variable. No agent runs.
func noted(recovery *string) Request {
	return Request{
		Show:    func(shown string) error { *recovery = shown; return nil },
		LockOut: func() (func() error, error) { return func() error { return nil }, nil },
	}
}

// names returns the names of the files in the directory of a key.
func names(t *testing.T, p Place) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(p.Dir)
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// opens checks that the key opens, that it has a value, and that the file is sealed or not. It checks the same with the recovery key if one
// is given.
func opens(t *testing.T, when string, p Place, want []byte, sealed bool, recovery string) {
	t.Helper()
	k, err := p.Read()
	if err != nil || !bytes.Equal(k.Bytes, want) || k.Sealed != sealed || p.IsSealed() != sealed {
		t.Errorf("%s: %+v, %v, want sealed %t", when, k, err, sealed)
		return
	}
	if s := p.Status(); s.Problem != nil || !s.Exists || s.Sealed != sealed || len(s.Copies) > 0 {
		t.Errorf("%s: %+v", when, s)
	}
	if info, err := os.Lstat(p.Path()); err != nil || info.Mode() != 0o600 {
		t.Errorf("%s: %v, %v", when, info.Mode(), err)
	}
	if sealed {
		got, err := p.reveal(k.content, recovery)
		if err != nil || !bytes.Equal(got, want) || bytes.Contains(k.content, want) {
			t.Errorf("%s: the recovery key opens %x, %v", when, got, err)
		}
	}
}

// TestSeal checks the states of a key file: none, plain, sealed, sealed again and plain again. The key stays the same. No other file is
// left, and each recovery key opens only the file that it was made for.
func TestSeal(t *testing.T) {
	p := Place{Dir: t.TempDir(), TPM: startTPM(t)}
	if _, err := p.Read(); !errors.Is(err, ErrNone) || p.IsSealed() || p.Status().Exists {
		t.Error(err)
	}
	must(t, p.Make())
	k, err := p.Read()
	must(t, err)
	opens(t, "plain", p, k.Bytes, false, "")
	var first, second string
	must(t, p.Seal(noted(&first)))
	opens(t, "sealed", p, k.Bytes, true, first)
	r := noted(&second)
	r.PCRs = []uint{0, 7}
	must(t, p.Seal(r))
	opens(t, "sealed again", p, k.Bytes, true, strings.ToUpper(strings.ReplaceAll(second, "-", " "))+"\n")
	if s := p.Status(); !slices.Equal(s.PCRs, r.PCRs) || s.PolicyKey != "" || len(s.Policy) != 64 {
		t.Errorf("%+v", s)
	}
	if err := p.Unseal(Request{Recovery: first}); !errors.Is(err, ErrRecovery) {
		t.Error(err)
	}
	if got := names(t, p); !slices.Equal(got, []string{Name}) {
		t.Error(got)
	}
	must(t, p.Unseal(Request{}))
	opens(t, "unsealed", p, k.Bytes, false, "")
	if err := p.Unseal(Request{}); err == nil {
		t.Error("a plain key was unsealed")
	}
	must(t, p.Seal(noted(&first)))
	must(t, p.Unseal(Request{Recovery: first}))
	opens(t, "unsealed by a person", p, k.Bytes, false, "")
	if got := names(t, p); !slices.Equal(got, []string{Name}) {
		t.Error(got)
	}
}

// TestNeverPlain checks that a key that Seal makes is never in a file in plain. Seal replaces no key that the agent makes meanwhile.
func TestNeverPlain(t *testing.T) {
	p := Place{Dir: t.TempDir(), TPM: startTPM(t)}
	var recovery string
	r := noted(&recovery)
	r.crash = func(step string) error {
		if step == "shown" {
			return p.Make()
		}
		return nil
	}
	if err := p.Seal(r); err == nil || p.IsSealed() {
		t.Error("the key of the agent was replaced:", err)
	}
	must(t, os.Remove(p.Path()))
	r.crash = func(string) error {
		if copies, err := p.plainCopies(); len(copies) > 0 || err != nil {
			t.Error(copies, err)
		}
		return nil
	}
	must(t, p.Seal(r))
	k, err := p.Read()
	must(t, err)
	opens(t, "at once", p, k.Bytes, true, recovery)
	if got := names(t, p); !slices.Equal(got, []string{Name}) {
		t.Error(got)
	}
}

// TestChangedMeanwhile checks that Seal does not replace a key file that was changed while a person wrote down the recovery key.
func TestChangedMeanwhile(t *testing.T) {
	p := Place{Dir: t.TempDir(), TPM: startTPM(t)}
	another := bytes.Repeat([]byte("k"), Size)
	change := func() error { return os.WriteFile(p.Path(), another, 0o600) }
	remove := func() error { return os.Remove(p.Path()) }
	for _, c := range []struct {
		what        string
		before, act func() error
	}{
		{"a key file that appears", func() error { return nil }, change}, {"another key", p.Make, change}, {"no key", p.Make, remove},
	} {
		must(t, removeIfThere(p.Path()))
		must(t, c.before())
		var recovery string
		r := noted(&recovery)
		r.Show = func(string) error { return c.act() }
		if err := p.Seal(r); err == nil || p.IsSealed() {
			t.Errorf("%s was replaced: %v", c.what, err)
		}
		if data, err := os.ReadFile(p.Path()); !bytes.Equal(data, another) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %x, %v", c.what, data, err)
		}
		if got := names(t, p); len(got) > 1 || len(got) == 1 && got[0] != Name {
			t.Errorf("%s: Seal leaves %q", c.what, got)
		}
	}
}

// TestKeyInMemory checks that Seal makes no second key while an agent runs that has the key of a removed file in memory. Restore waits for
// the end of such a command, and it never replaces a file that it does not know.
func TestKeyInMemory(t *testing.T) {
	p := Place{Dir: t.TempDir(), TPM: startTPM(t)}
	must(t, p.Make())
	k, err := p.Read()
	must(t, err)
	must(t, os.Remove(p.Path()))
	runs := errors.New("an agent runs")
	var recovery string
	r := noted(&recovery)
	r.LockOut = func() (func() error, error) { return nil, runs }
	if err := p.Seal(r); !errors.Is(err, runs) || recovery != "" || len(names(t, p)) > 0 {
		t.Error(err, recovery, names(t, p))
	}
	released := 0
	r.LockOut = func() (func() error, error) { return func() error { released++; return nil }, nil }
	r.Show = func(string) error {
		if err := k.Restore(); err == nil || released > 0 {
			t.Error("the file was restored during the command, or agents could start:", err)
		}
		return errors.New("not written down")
	}
	if err := p.Seal(r); err == nil || released != 1 {
		t.Error(err, released)
	}
	must(t, k.Restore())
	opens(t, "restored", p, k.Bytes, false, "")
	r.Show = func(string) error { return k.Restore() } // there is nothing to do, so it does not fail
	must(t, p.Seal(r))
	must(t, os.Remove(p.Path()))
	must(t, p.Seal(noted(&recovery)))
	sealed, err := os.ReadFile(p.Path())
	must(t, err)
	must(t, errors.Join(k.Restore(), p.create(k.content)))
	if now, err := os.ReadFile(p.Path()); err != nil || !bytes.Equal(now, sealed) {
		t.Errorf("the sealed file was replaced: %v", err)
	}
}

// TestRestore checks that a running agent brings back the key file as it was last, sealed or plain.
func TestRestore(t *testing.T) {
	p := Place{Dir: t.TempDir(), TPM: startTPM(t)}
	must(t, p.Make())
	k, err := p.Read()
	must(t, err)
	lose := func(when string, sealed bool, recovery string) {
		t.Helper()
		if k.Removed() {
			t.Error(when, "is called removed")
		}
		must(t, os.Remove(p.Path()))
		if !k.Removed() {
			t.Error(when, "is not called removed")
		}
		must(t, k.Restore())
		opens(t, when, p, k.Bytes, sealed, recovery)
	}
	lose("plain", false, "")
	var recovery string
	must(t, p.Seal(noted(&recovery)))
	lose("sealed", true, recovery)
	must(t, p.Unseal(Request{}))
	lose("unsealed", false, "")
	must(t, os.Rename(p.Path(), p.Path()+".mine"))
	must(t, os.WriteFile(p.Path(), make([]byte, Size), 0o600)) // the key of somebody else
	lose("replaced", false, "")
}

// TestPolicyKey checks a policy key that another machine has: the key file can be sealed only after the policy was signed, and each signed
// state of the machine opens it.
func TestPolicyKey(t *testing.T) {
	p := Place{Dir: t.TempDir(), TPM: startTPM(t), Policies: t.TempDir()}
	must(t, p.Make())
	k, err := p.Read()
	must(t, err)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	var recovery string
	r := noted(&recovery)
	r.PolicyKey, err = x509.MarshalPKIXPublicKey(&private.PublicKey)
	must(t, err)
	r.PCRs = []uint{7}
	if err := p.Seal(r); !errors.Is(err, tpm.ErrPolicy) || !strings.Contains(err.Error(), p.Policies) || recovery != "" {
		t.Error(err, recovery)
	}
	opens(t, "not signed", p, k.Bytes, false, "")
	policy, err := hex.DecodeString(p.present(r.PCRs))
	must(t, err)
	hash := sha256.Sum256(policy)
	signature, err := ecdsa.SignASN1(rand.Reader, private, hash[:])
	must(t, err)
	must(t, os.WriteFile(p.SignatureFile(policy), signature, 0o644))
	must(t, p.Seal(r))
	opens(t, "signed", p, k.Bytes, true, recovery)
	if s := p.Status(); !strings.HasPrefix(s.PolicyKey, "SHA256:") || s.Policy != hex.EncodeToString(policy) {
		t.Errorf("%+v", s)
	}
	for what, content := range map[string][]byte{"another": append([]byte{0x30}, signature...), "huge": make([]byte, maxSignature+1)} {
		must(t, os.WriteFile(p.SignatureFile(policy), content, 0o644))
		if _, err := p.Read(); err == nil {
			t.Error(what, "signature opens the key")
		}
	}
}

// TestDoesNotOpen checks that each reason for which a sealed key does not open is an error with advice that names the file. Nothing is
// changed, and no new key is made.
func TestDoesNotOpen(t *testing.T) {
	p := Place{Dir: t.TempDir(), TPM: startTPM(t)}
	must(t, p.Make())
	var recovery string
	must(t, p.Seal(noted(&recovery)))
	content, err := os.ReadFile(p.Path())
	must(t, err)
	other := startTPM(t)
	for what, c := range map[string]struct {
		device string
		change func([]byte) []byte
		want   error
	}{
		"no TPM":        {p.TPM + ".missing", bytes.Clone, tpm.ErrNoDevice},
		"another TPM":   {other, bytes.Clone, tpm.ErrOther},
		"changed":       {p.TPM, func(b []byte) []byte { return flip(b, `"private": "`) }, tpm.ErrDamaged},
		"another key":   {p.TPM, func(b []byte) []byte { return flip(b, `"policyKey": "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE`) }, errDocument},
		"signature":     {p.TPM, func(b []byte) []byte { return flip(b, `"signature": "ME`) }, tpm.ErrPolicy},
		"cut off":       {p.TPM, func(b []byte) []byte { return b[:len(b)/2] }, errDocument},
		"newer":         {p.TPM, func(b []byte) []byte { return bytes.Replace(b, []byte(`"version": 1`), []byte(`"version": 2`), 1) }, errDocument},
		"unknown field": {p.TPM, func(b []byte) []byte { return bytes.Replace(b, []byte(`"salt"`), []byte(`"more"`), 1) }, errDocument},
		"bad PCRs": {p.TPM, func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"salt"`), []byte(`"pcrs": [7, 7], "salt"`), 1)
		}, errDocument},
		"no data": {p.TPM, func([]byte) []byte { return []byte(`{"version": 1, "policyKey": "", "public": ""     }`) }, errDocument},
	} {
		q := Place{Dir: t.TempDir(), TPM: c.device}
		changed := c.change(bytes.Clone(content))
		must(t, os.WriteFile(q.Path(), changed, 0o600))
		_, err := q.Read()
		if errors.Is(err, ErrNone) {
			t.Errorf("%s: %v is like a missing file, so the store would make a key", what, err)
		}
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), q.Path()) || !strings.Contains(err.Error(), ": ") {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		if s := q.Status(); !s.Sealed || !errors.Is(s.Problem, c.want) {
			t.Errorf("%s: %+v", what, s)
		}
		if err := errors.Join(q.Make(), q.Seal(noted(&recovery))); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if data, err := os.ReadFile(q.Path()); err != nil || !bytes.Equal(data, changed) || len(names(t, q)) != 1 {
			t.Errorf("%s: the file was changed: %v, %q", what, err, names(t, q))
		}
	}
}

// flip changes the characters after a text to others that are base64 too.
func flip(b []byte, after string) []byte {
	i := bytes.Index(b, []byte(after)) + len(after)
	for j := range 4 {
		b[i+8+j] ^= 1
		if b[i+8+j] == '@' || b[i+8+j] == '`' || b[i+8+j] == '*' || b[i+8+j] == '.' || b[i+8+j] == ':' || b[i+8+j] == '[' || b[i+8+j] == '{' {
			b[i+8+j] = 'Q'
		}
	}
	return b
}

// TestHostileFile checks that a key file that is not a key file is rejected with a bound, and never replaced.
func TestHostileFile(t *testing.T) {
	for what, make := range map[string]func(path string) error{
		"huge":        func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("{"), maxFile+1), 0o600) },
		"deep":        func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte(`{"a":[`), 2000), 0o600) },
		"no document": func(path string) error { return os.WriteFile(path, make([]byte, Size+8), 0o600) },
		"short":       func(path string) error { return os.WriteFile(path, []byte("{}"), 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a link":      func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		p := Place{Dir: t.TempDir(), TPM: "/dev/null"}
		must(t, make(p.Path()))
		before, err := os.Lstat(p.Path())
		must(t, err)
		if _, err := p.Read(); err == nil || errors.Is(err, ErrNone) {
			t.Error(what, err)
		}
		if s := p.Status(); s.Problem == nil || s.Sealed != (what == "deep") || s.Sealed != p.IsSealed() {
			t.Errorf("%s: %+v", what, s)
		}
		must(t, p.Make())
		if after, err := os.Lstat(p.Path()); err != nil || !os.SameFile(before, after) || after.Size() != before.Size() {
			t.Error(what, "was replaced:", err)
		}
	}
}

// TestRecoveryKey checks that a recovery key is accepted as people type it, and that a wrong one is not.
func TestRecoveryKey(t *testing.T) {
	key, err := newKey()
	must(t, err)
	recovery, err := newRecovery()
	must(t, err)
	var d document
	must(t, d.addRecovery(key, recovery))
	misread := strings.NewReplacer("0", "O", "1", "l").Replace(recovery)
	for _, typed := range []string{recovery, strings.ToUpper(recovery), strings.ReplaceAll(recovery, "-", ""), " " + misread + "\r\n"} {
		if got, err := d.recover(typed); err != nil || !bytes.Equal(got, key) {
			t.Errorf("%q: %v", typed, err)
		}
	}
	another, err := newRecovery()
	must(t, err)
	for _, typed := range []string{"", another, recovery[:len(recovery)-1], recovery + "-0000", "ü" + recovery, strings.Repeat("0", 32)} {
		if got, err := d.recover(typed); !errors.Is(err, ErrRecovery) || got != nil {
			t.Errorf("%q: %v", typed, err)
		}
	}
}
